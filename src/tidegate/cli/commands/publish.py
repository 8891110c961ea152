"""`tidegate publish`: append events to a raw stream."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.lock import RunningProcess
from tidegate.cli.input import gateway_client, options
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem

if TYPE_CHECKING:
    from tidegate import Client

_BATCH_EVENTS = 1_000


def publish(
    context: typer.Context,
    stream: Annotated[str, typer.Argument(help="The raw stream.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]", help="Events: one JSON object per line, or a JSON array; - for standard input."
        ),
    ] = "-",
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Over HTTP: accept the valid events, instead of all or nothing.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Append events to a raw stream, one JSON object per line.

    With --url, or while a gateway runs in the folder, the events are sent to the gateway. Otherwise they are appended
    to the folder's log, and lines that are no JSON object go to the stream's quarantine.
    """
    gateway_url = options.url_rather_than_data(context, url)
    if gateway_url is None:
        home = options.home(data, profile)
        running = _running_gateway(home)
        if running is None:
            _append(home, stream, file, as_json)
            return
        client = gateway_client.connect(str(running.url), key, running.certificate)
    else:
        client = gateway_client.connect(gateway_url, key)
    with client:
        _send(client, stream, file, partial, as_json)


def _running_gateway(home: Home) -> RunningProcess | None:
    """Return the process whose gateway is the only writer of a folder's raw streams; None if there is none.

    Raises an `EnvironmentProblem` while that gateway starts.
    """
    running = home.running()
    if running is None or not running.has_gateway:
        return None
    if running.url is None:
        raise EnvironmentProblem(
            f"a gateway starts in {str(home.folder)!r} (process {running.process}), and will be the only writer of its "
            "streams: try again when it is ready, or send to it with --url URL"
        )
    return running


def _send(client: Client, stream: str, file: str, partial: bool, as_json: bool) -> None:
    receipt = client.publish(stream, _lines(file), mode="partial" if partial else "all")
    for error in receipt.errors:
        typer.echo(str(error), err=True)
    accepted, duplicates, refused = receipt.accepted, receipt.duplicates, receipt.refused
    if as_json:
        counts = {"accepted": accepted, "duplicates": duplicates, "refused": refused, "cursor": receipt.cursor}
        typer.echo(json.dumps(counts))
        return
    typer.echo(
        f"{accepted:,} events in {stream}"
        + (f", {duplicates:,} were there already" if duplicates else "")
        + (f", {refused:,} refused" if refused else "")
    )


def _append(home: Home, stream: str, file: str, as_json: bool) -> None:
    from tidegate.ingress.raw_streams import Input, RawStreamWriter
    from tidegate.logs.writer_lock import WriterLock

    registry = home.existing_registry()
    try:
        definition = registry.stream(stream).stream
    finally:
        registry.close()
    log = home.log()
    lock = (
        None
        if home.writer_lock is None
        else WriterLock(home.writer_lock, f"`tidegate publish` (process {os.getpid()})")
    )
    accepted = refused = 0
    lines = _lines(file)
    try:
        if lock is not None:
            lock.acquire()
        writer = RawStreamWriter(log, definition)
        while batch := list(islice(lines, _BATCH_EVENTS)):
            counts = writer.append_inputs(Input(line) for line in batch)
            accepted += counts.accepted
            refused += counts.refused
    finally:
        log.close()
        if lock is not None:
            lock.close()
    if as_json:
        typer.echo(json.dumps({"accepted": accepted, "duplicates": 0, "refused": refused, "cursor": None}))
        return
    typer.echo(f"{accepted:,} events in {stream}" + (f", {refused:,} lines in its quarantine" if refused else ""))


def _lines(file: str) -> Iterator[bytes]:
    """Yield the JSON texts of a file: its non-empty lines, or the elements of the one array that it holds."""
    try:
        with open(sys.stdin.fileno(), "rb", closefd=False) if file == "-" else Path(file).open("rb") as lines:
            first = next((line for line in lines if line.strip()), b"")
            if first.lstrip().startswith(b"["):
                yield from _array_elements(first + lines.read(), file)
                return
            for line in chain([first], lines):
                if line.strip():
                    yield line.rstrip(b"\r\n")
    except OSError as error:
        raise EnvironmentProblem(f"can't read {file!r}: {error.strerror}") from error


def _array_elements(text: bytes, file: str) -> Iterator[bytes]:
    try:
        events = json.loads(text)
    except ValueError as error:
        raise EnvironmentProblem(f"{file!r} starts like a JSON array, but is not valid JSON: {error}") from error
    for event in events:
        yield json.dumps(event, ensure_ascii=False).encode()
