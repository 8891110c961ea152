"""`tidegate subscribe`: events of a service, as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import options, pipes

if TYPE_CHECKING:
    from tidegate.client import Event, Notice

INTERRUPTED = 130
NO_READER = 141


class Format(StrEnum):
    """How events are written."""

    plain = "plain"
    cloudevents = "cloudevents"


def subscribe(
    service: Annotated[str, typer.Argument(help="The service.")],
    filter_: Annotated[
        str | None, typer.Argument(metavar="[FILTER]", help="Just events that match: \"speed > 60 AND vid LIKE 'B%'\".")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Values of the filter's %0, %1, ...; may be repeated.")
    ] = None,
    since: Annotated[
        str, typer.Option("--from", help="now, beginning, a moment, or 10m for ten minutes ago.", metavar="WHEN")
    ] = "now",
    cursor: Annotated[str | None, typer.Option(help="Go on behind it, wherever --from is.")] = None,
    select: Annotated[str | None, typer.Option(help="Attributes, separated by commas.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="What an event is in JSON.")] = Format.plain,
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after so many events.")] = None,
    url: Annotated[str, typer.Option(envvar="TIDEGATE_URL", help="The gateway.")] = "http://127.0.0.1:8080",
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Print events of a service as they come: lines to read on a terminal, one JSON object a line in a pipe.

    A lost connection is made again, and goes on behind the last event. Ctrl-C prints the cursor to go on with.
    """
    from tidegate import Client

    show = _show_json if as_json or not _is_terminal() else _shower()
    with Client(url, key=key) as client:
        subscription = client.subscribe(
            service,
            filter_,
            params=param or (),
            cursor=cursor,
            since=since,
            select=select,
            format=format_.value,
            on_notice=_tell,
        )
        try:
            with pipes.ends_with_its_reader(), subscription:
                for event in islice(subscription, most):
                    show(event)
        except KeyboardInterrupt:
            if subscription.cursor is not None:
                typer.echo(f"go on with --cursor {subscription.cursor}", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            pipes.discard_output()
            raise typer.Exit(NO_READER) from None


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _tell(notice: Notice) -> None:
    typer.echo(_said(notice), err=True)


def _said(notice: Notice) -> str:
    said = notice.said
    match notice.kind:
        case "gap":
            return f"warning: events were missed: {said.get('reason')}"
        case "lost":
            return f"{said['reason']}; trying again in {said['wait_s']:.1f} s"
        case "idle":
            return f"nothing has come for {said['seconds']:g} s"
        case "changed":
            return f"from here on the filter is {said.get('filter')}"


def _show_json(event: Event) -> None:
    sys.stdout.write(event.text + "\n")
    sys.stdout.flush()


def _shower() -> Callable[[Event], None]:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    return lambda event: console.print(line(event))


def line(event: Event) -> Any:
    """One event as a line of coloured text.

    >>> from tidegate.client import Event
    >>> line(Event("gps:0:7", "c", {"vid": "B17", "pos": {"x": 1}}, "2026-01-01T00:00:00.250000Z")).plain
    '2026-01-01 00:00:00.250  gps:0:7  vid="B17" pos={"x": 1}'
    """
    from rich.text import Text

    found = Text()
    if event.time is not None:
        found.append(_printable(_short(event.time)) + "  ", "dim")
    found.append(_printable(event.id) + " ", "cyan")
    for name, value in event.data.items():
        found.append(f" {_printable(name)}=", "dim")
        found.append(_printable(json.dumps(value, ensure_ascii=False)), "green" if isinstance(value, str) else "bold")
    return found


def _short(time: str) -> str:
    """A moment without what every one has."""
    return time[:23].replace("T", " ") if len(time) == len("2026-01-01T00:00:00.000000Z") else time


def _printable(text: str) -> str:
    """Text that does nothing to a terminal but be read."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
