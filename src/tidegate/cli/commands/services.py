"""`tidegate services`: list services with their state."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli.data_folder.home import Home
from tidegate.cli.input import gateway_client, options
from tidegate.cli.profile import EMBEDDED


def services(
    context: typer.Context,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """List the services of a folder, or of a gateway, with their last known state, rates and latencies."""
    gateway_url = options.url_rather_than_data(context, url)
    rows = _of_folder(options.home(data, profile)) if gateway_url is None else _of_gateway(gateway_url, key)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, padding=(0, 2))
    for title in ("service", "version", "state", "mode", "in/s", "out/s", "p99 ms", "quarantined", "error"):
        table.add_column(title, no_wrap=title != "error")
    for row in rows:
        status: dict[str, Any] = row["status"] or {}
        p99 = status.get("latency_p99_ms")
        table.add_row(
            row["service"],
            "" if row["version"] is None else str(row["version"]),
            status.get("state", "never ran" if row["origin"] is None else f"of {row['origin']}"),
            status.get("mode", ""),
            f"{status.get('read_per_s', 0):,.0f}",
            f"{status.get('written_per_s', 0):,.0f}",
            "" if p99 is None else f"{p99:,.1f}",
            f"{status.get('quarantined', 0):,}",
            status.get("error") or "",
        )
    Console(soft_wrap=True, width=options.WIDTH).print(table)


def _of_folder(home: Home) -> list[dict[str, Any]]:
    registry = home.existing_registry()
    try:
        registered = registry.services()
    finally:
        registry.close()
    statuses = last_statuses(home)
    return [
        {
            "service": name,
            "version": entry.version,
            "from": list(entry.service.inputs),
            "status": statuses.get(name),
            "origin": None,
        }
        for name, entry in registered.items()
    ]


def _of_gateway(url: str, key: str | None) -> list[dict[str, Any]]:
    with gateway_client.connect(url, key) as client:
        return [
            {
                "service": service["name"],
                "version": service["version"],
                "from": _as_list(service["definition"].get("from", [])),  # remote services have none
                "status": service["status"],
                "origin": service["origin"],
            }
            for service in client.services()
        ]


def _as_list(inputs: Any) -> list[str]:
    return inputs if isinstance(inputs, list) else [inputs]


def last_statuses(home: Home) -> dict[str, dict[str, Any]]:
    """Return the newest event of the stream `_status` for each service. Reads the whole stream."""
    log = home.log()
    try:
        if "_status" not in log.streams():
            return {}
        statuses: dict[str, dict[str, Any]] = {}
        cursor = log.begin("_status")
        while (read := log.read("_status", cursor, 10_000)).records:
            for event in map(json.loads, read.records):
                if event.get("kind", "service") == "service":
                    statuses[event["service"]] = event
            cursor = read.cursor
        return statuses
    finally:
        log.close()
