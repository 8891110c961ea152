"""`tidegate publish`: put events into a raw stream."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import connecting, options
from tidegate.cli.home import Home, Running
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem

if TYPE_CHECKING:
    from tidegate import Client

_BATCH = 1_000


def publish(
    context: typer.Context,
    stream: Annotated[str, typer.Argument(help="The raw stream.")],
    file: Annotated[
        str,
        typer.Argument(metavar="[FILE]", help="Events, one JSON object a line, or a JSON array; - is standard input."),
    ] = "-",
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Over HTTP: take all that fits, not all or nothing.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Put events into a raw stream, one JSON object a line.

    With --url, or while a gateway runs in the folder, it is sent there. Else it is appended to the folder's log,
    and what is no JSON object goes to the stream's quarantine.
    """
    found = options.url_rather_than_data(context, url)
    if found is None:
        home = options.home(data, profile)
        running = _running_gateway(home)
        if running is None:
            _append(home, stream, file, as_json)
            return
        client = connecting.client(str(running.url), key, running.certificate)
    else:
        client = connecting.client(found, key)
    with client:
        _send(client, stream, file, partial, as_json)


def _running_gateway(home: Home) -> Running | None:
    """The gateway that writes to a folder's log; None: there is none, and others may."""
    running = home.running()
    if running is None or not running.has_gateway:
        return None
    if running.url is None:
        raise EnvironmentProblem(
            f"a gateway starts in {str(home.folder)!r} (process {running.process}), and will be the one writer of its "
            "streams: try again when it is ready, or send to it with --url URL"
        )
    return running


def _send(client: Client, stream: str, file: str, partial: bool, as_json: bool) -> None:
    receipt = client.publish(stream, _lines(file), mode="partial" if partial else "all")
    for each in receipt.errors:
        typer.echo(str(each), err=True)
    taken, known, refused = receipt.accepted, receipt.duplicates, receipt.refused
    if as_json:
        said = {"accepted": taken, "duplicates": known, "refused": refused, "cursor": receipt.cursor}
        typer.echo(json.dumps(said))
        return
    typer.echo(
        f"{taken:,} events in {stream}"
        + (f", {known:,} were there already" if known else "")
        + (f", {refused:,} refused" if refused else "")
    )


def _append(home: Home, stream: str, file: str, as_json: bool) -> None:
    from tidegate.logs.intake import Input, Intake
    from tidegate.logs.writer_lock import WriterLock

    registry = home.existing_registry()
    try:
        found = registry.stream(stream).stream
    finally:
        registry.close()
    log = home.log()
    sole = None if home.sole is None else WriterLock(home.sole, f"`tidegate publish` (process {os.getpid()})")
    accepted = refused = 0
    lines = _lines(file)
    try:
        if sole is not None:
            sole.acquire()
        intake = Intake(log, found)
        while batch := list(islice(lines, _BATCH)):
            taken = intake.take(Input(line) for line in batch)
            accepted += taken.accepted
            refused += taken.refused
    finally:
        log.close()
        if sole is not None:
            sole.close()
    if as_json:
        typer.echo(json.dumps({"accepted": accepted, "duplicates": 0, "refused": refused, "cursor": None}))
        return
    typer.echo(f"{accepted:,} events in {stream}" + (f", {refused:,} lines in its quarantine" if refused else ""))


def _lines(file: str) -> Iterator[bytes]:
    """What stands in the lines of a file, or in the one array that it holds."""
    try:
        with open(sys.stdin.fileno(), "rb", closefd=False) if file == "-" else Path(file).open("rb") as lines:
            first = next((line for line in lines if line.strip()), b"")
            if first.lstrip().startswith(b"["):
                yield from _listed(first + lines.read(), file)
                return
            for line in chain([first], lines):
                if line.strip():
                    yield line.rstrip(b"\r\n")
    except OSError as error:
        raise EnvironmentProblem(f"can't read {file!r}: {error.strerror}") from error


def _listed(text: bytes, file: str) -> Iterator[bytes]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise EnvironmentProblem(f"{file!r} begins as a JSON array, and is none: {error}") from error
    for each in found:
        yield json.dumps(each, ensure_ascii=False).encode()
