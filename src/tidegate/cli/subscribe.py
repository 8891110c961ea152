"""`tidegate subscribe`: events of a service, as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import connecting, durations, options, pipes
from tidegate.cli.interrupts import prompt_interrupts

if TYPE_CHECKING:
    from tidegate.client import Event, Notice

INTERRUPTED = 130
NO_READER = 141


class Format(StrEnum):
    """How events are written."""

    plain = "plain"
    cloudevents = "cloudevents"


def subscribe(
    service: Annotated[str | None, typer.Argument(help="The service; none with --subscription.")] = None,
    filter_: Annotated[
        str | None, typer.Argument(metavar="[FILTER]", help="Just events that match: \"speed > 60 AND vid LIKE 'B%'\".")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Values of the filter's %0, %1, ...; may be repeated.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help="now (the default), beginning, a moment, or 10m ago.", metavar="WHEN"),
    ] = None,
    cursor: Annotated[str | None, typer.Option(help="Go on behind it, wherever --from is.")] = None,
    latest: Annotated[
        str | None,
        typer.Option(help="Of what is there already, just the newest event of each value of this."),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="At most the latest event of each --every-key in so long: 1s.")
    ] = None,
    every_key: Annotated[str | None, typer.Option(help="The attribute that --every tells events apart by.")] = None,
    subscription: Annotated[
        str | None, typer.Option(help="Consume a durable one by its id; what is printed is acknowledged.")
    ] = None,
    select: Annotated[str | None, typer.Option(help="Attributes, separated by commas.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="What an event is in JSON.")] = Format.plain,
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after so many events.")] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Print events of a service as they come: lines to read on a terminal, one JSON object a line in a pipe.

    A lost connection is made again, and goes on behind the last event. Ctrl-C prints the cursor to go on with.
    """
    show = _show_json if as_json or not _is_terminal() else _shower()
    with connecting.client(url, key) as client:
        if subscription is not None:
            asked = (service, filter_, param, since, cursor, every, every_key, select)
            if any(each is not None for each in asked):
                raise typer.BadParameter("--subscription: expected just --latest beside it, as it has the rest")
            found = client.consume(subscription, latest=latest, on_notice=_tell)
        elif service is None:
            raise typer.BadParameter("expected a service, or --subscription with the id of a durable one")
        else:
            found = client.subscribe(
                service,
                filter_,
                params=param or (),
                cursor=cursor,
                since=since,
                latest=latest,
                select=select,
                format=format_.value,
                every=None if every is None else durations.seconds(every),
                key=every_key,
                on_notice=_tell,
            )
        try:
            with prompt_interrupts(), pipes.ends_with_its_reader(), found:
                for event in islice(found, most):
                    show(event)
        except KeyboardInterrupt:
            if found.cursor is not None and subscription is None:
                typer.echo(f"go on with --cursor {found.cursor}", err=True)
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
        case "latest":
            return f"these {said.get('events')} are the newest that there were; what follows comes as it comes"
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
