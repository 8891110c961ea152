"""`tidegate state`: saves and restores the state of services."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tidegate.cli.data_folder import local_audit
from tidegate.cli.data_folder.home import Home
from tidegate.cli.input import options
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.pipelines.state_snapshots import StateSnapshot, StateSnapshots

app = typer.Typer(help="Save and restore the state of services.", no_args_is_help=True, add_completion=False)

Service = Annotated[str, typer.Argument(help="A service with state.", show_default=False)]
Name = Annotated[str, typer.Argument(help="The name of the snapshot.", show_default=False)]


@app.callback()
def group() -> None:
    """Save and restore the state of services: open windows, sessions, joins, patterns."""


@app.command("save")
def save(service: Service, name: Name, data: options.Data = options.DATA, profile: options.Profile = EMBEDDED) -> None:
    """Save the state of a service under a name. The service may run.

    The snapshot has everything up to the last checkpoint, at most a minute ago. Events since then are read again after
    a restore.
    """
    home = options.home(data, profile)
    _need_service(home, service)
    snapshot = _snapshots(home).save(service, name, datetime.now(UTC))
    local_audit.record(home, "state.save", service, name)
    typer.echo(f"the state of {service} version {snapshot.version} is saved as {name}")


@app.command("list")
def list_(
    service: Annotated[str | None, typer.Argument(help="Only those of one service.", show_default=False)] = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    as_json: options.AsJson = False,
) -> None:
    """List snapshots of states, oldest first."""
    found = _snapshots(options.home(data, profile)).list(service)
    if as_json:
        typer.echo(json.dumps([_document(each) for each in found], indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("service", "name", "version", "saved at", "MB"):
        table.add_column(heading)
    for each in found:
        size = f"{each.size_bytes / 1e6:.1f}"
        table.add_row(each.service, each.name, str(each.version), f"{each.saved_at:%Y-%m-%d %H:%M:%S}Z", size)
    Console().print(table)


@app.command("restore")
def restore(
    service: Service, name: Name, data: options.Data = options.DATA, profile: options.Profile = EMBEDDED
) -> None:
    """Put a saved state in the place of the present one; `tidegate up` must not run.

    The service then reads on from where it was when the state was saved. Results that it wrote since then stay, and are
    not written again.
    """
    home = options.home(data, profile)
    with home.locked():
        snapshot = _snapshots(home).restore(service, name)
    local_audit.record(home, "state.restore", service, name)
    typer.echo(
        f"the state of {service} is that of version {snapshot.version} at {snapshot.saved_at:%Y-%m-%d %H:%M:%S}Z; "
        "start tidegate up again"
    )


def _snapshots(home: Home) -> StateSnapshots:
    return StateSnapshots(home.folder / "states", home.checkpoints)


def _need_service(home: Home, service: str) -> None:
    registry = home.existing_registry()
    try:
        names = registry.services().keys()
    finally:
        registry.close()
    if service not in names:
        raise EnvironmentProblem(f"no service {service!r}{did_you_mean(service, names)}")


def _document(snapshot: StateSnapshot) -> dict[str, object]:
    return {
        "service": snapshot.service,
        "name": snapshot.name,
        "version": snapshot.version,
        "saved_at": snapshot.saved_at.isoformat(),
        "size_bytes": snapshot.size_bytes,
    }
