"""`tidegate services`: what should run, and how it does."""

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
    found = options.url_rather_than_data(context, url)
    rows = _of_folder(options.home(data, profile)) if found is None else _of_gateway(found, key)
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
    seen = last_statuses(home)
    return [
        {
            "service": name,
            "version": each.version,
            "from": list(each.service.inputs),
            "status": seen.get(name),
            "origin": None,
        }
        for name, each in registered.items()
    ]


def _of_gateway(url: str, key: str | None) -> list[dict[str, Any]]:
    with gateway_client.connect(url, key) as client:
        return [
            {
                "service": each["name"],
                "version": each["version"],
                "from": _as_list(each["definition"].get("from", [])),  # of another broker's it is not told
                "status": each["status"],
                "origin": each["origin"],
            }
            for each in client.services()
        ]


def _as_list(inputs: Any) -> list[str]:
    return inputs if isinstance(inputs, list) else [inputs]


def last_statuses(home: Home) -> dict[str, dict[str, Any]]:
    """The newest event of `_status` for each service."""
    log = home.log()
    try:
        if "_status" not in log.streams():
            return {}
        found: dict[str, dict[str, Any]] = {}
        cursor = log.begin("_status")
        while (read := log.read("_status", cursor, 10_000)).records:
            for event in map(json.loads, read.records):
                if event.get("kind", "service") == "service":
                    found[event["service"]] = event
            cursor = read.cursor
        return found
    finally:
        log.close()
