"""`tidegate publish`: put events into a raw stream."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import options
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem

_BATCH = 1_000


def publish(
    stream: Annotated[str, typer.Argument(help="The raw stream.")],
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Events, one JSON object a line; - is standard input.")
    ] = "-",
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
) -> None:
    """Append events to a raw stream, one JSON object a line; what is none goes to the stream's quarantine."""
    from tidegate.logs.intake import Input, Intake

    home = options.home(data, profile)
    registry = home.existing_registry()
    try:
        found = registry.stream(stream).stream
    finally:
        registry.close()
    log = home.log()
    intake = Intake(log, found)
    accepted = refused = 0
    try:
        with open(sys.stdin.fileno(), "rb", closefd=False) if file == "-" else Path(file).open("rb") as lines:
            while batch := list(islice(lines, _BATCH)):
                taken = intake.take(Input(line.rstrip(b"\r\n")) for line in batch if line.strip())
                accepted += taken.accepted
                refused += taken.refused
    except OSError as error:
        raise EnvironmentProblem(f"can't read {file!r}: {error.strerror}") from error
    finally:
        log.close()
    typer.echo(f"{accepted:,} events in {stream}" + (f", {refused:,} lines in its quarantine" if refused else ""))
