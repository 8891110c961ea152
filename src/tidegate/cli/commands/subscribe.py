"""`tidegate subscribe`: print the events of a service as they arrive."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.input import durations, gateway_client, options
from tidegate.cli.output import pipes
from tidegate.cli.processes.interrupts import prompt_interrupts

if TYPE_CHECKING:
    from tidegate.client import Event, Notice, Subscription

_FROM_HELP = "Where to start: now (the default), beginning, a time, or 10m for ten minutes ago."
INTERRUPTED = 130
NO_READER = 141


class Format(StrEnum):
    """The JSON format of events."""

    plain = "plain"
    cloudevents = "cloudevents"


def subscribe(
    service: Annotated[str | None, typer.Argument(help="The service; leave it out with --subscription.")] = None,
    filter_: Annotated[
        str | None, typer.Argument(metavar="[FILTER]", help="Only events that match: \"speed > 60 AND vid LIKE 'B%'\".")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Values of the filter's %0, %1, ...; may be repeated.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help=_FROM_HELP, metavar="WHEN"),
    ] = None,
    cursor: Annotated[
        str | None, typer.Option(help="Continue after this cursor; takes precedence over --from.")
    ] = None,
    latest: Annotated[
        str | None, typer.Option(help="Of the past events, only the newest one per value of this attribute.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="At most one event, the latest, per --every-key in this interval: 1s.")
    ] = None,
    every_key: Annotated[str | None, typer.Option(help="The attribute that --every groups events by.")] = None,
    subscription: Annotated[
        str | None, typer.Option(help="Consume a durable subscription by its id, and acknowledge the printed events.")
    ] = None,
    select: Annotated[str | None, typer.Option(help="Attributes, separated by commas.")] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="The JSON format of events; plain by default.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--max", min=1, help="Exit after this many events.")] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the events of a service as they arrive: readable lines on a terminal, one JSON object per line in a pipe.

    Reconnects after a lost connection, and continues after the last event. Ctrl-C prints the cursor to continue from.
    """
    show = _show_json if as_json or not _is_terminal() else _line_printer()
    with gateway_client.connect(url, key) as client:
        if subscription is not None:
            _need_no_other(service, filter_, param, since, cursor, every, every_key, select, format_)
            events = client.consume(subscription, latest=latest, on_notice=_print_notice)
        elif service is None:
            raise typer.BadParameter("expected a service, or --subscription with the id of a durable one")
        else:
            events = client.subscribe(
                service,
                filter_,
                params=param or (),
                cursor=cursor,
                since=since,
                latest=latest,
                select=select,
                format=Format.plain.value if format_ is None else format_.value,
                every=None if every is None else durations.seconds(every),
                key=every_key,
                on_notice=_print_notice,
            )
        _print_events(events, show, limit, prints_cursor=subscription is None)


def _print_events(
    events: Subscription, show: Callable[[Event], None], limit: int | None, *, prints_cursor: bool
) -> None:
    """Print events until the end, the limit, Ctrl-C, or the end of the reader of the pipe."""
    try:
        with prompt_interrupts(), pipes.stop_without_reader(), events:
            for event in islice(events, limit):
                show(event)
    except KeyboardInterrupt:
        if events.cursor is not None and prints_cursor:
            typer.echo(f"continue with --cursor {events.cursor}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        pipes.discard_output()
        raise typer.Exit(NO_READER) from None


def _need_no_other(*options: object) -> None:
    if any(option is not None for option in options):
        raise typer.BadParameter("--subscription: expected only --latest with it; the subscription has the rest")


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _print_notice(notice: Notice) -> None:
    typer.echo(_notice_text(notice), err=True)


def _notice_text(notice: Notice) -> str:
    details = notice.said
    match notice.kind:
        case "gap":
            return f"warning: events were missed: {details.get('reason')}"
        case "lost":
            return f"{details['reason']}; trying again in {details['wait_s']:.1f} s"
        case "idle":
            return f"no message has arrived for {details['seconds']:g} s"
        case "latest":
            return f"the {details.get('events')} events above are the newest past ones; live events follow"
        case "changed":
            return f"from here on the filter is {details.get('filter')}"


def _show_json(event: Event) -> None:
    sys.stdout.write(event.text + "\n")
    sys.stdout.flush()


def _line_printer() -> Callable[[Event], None]:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    return lambda event: console.print(line(event))


def line(event: Event) -> Any:
    """Return one event as a line of coloured text.

    >>> from tidegate.client import Event
    >>> line(Event("gps:0:7", "c", {"vid": "B17", "pos": {"x": 1}}, "2026-01-01T00:00:00.250000Z")).plain
    '2026-01-01 00:00:00.250  gps:0:7  vid="B17" pos={"x": 1}'
    """
    from rich.text import Text

    text = Text()
    if event.time is not None:
        text.append(_printable(_short(event.time)) + "  ", "dim")
    text.append(_printable(event.id) + " ", "cyan")
    for name, value in event.data.items():
        text.append(f" {_printable(name)}=", "dim")
        text.append(_printable(json.dumps(value, ensure_ascii=False)), "green" if isinstance(value, str) else "bold")
    return text


def _short(time: str) -> str:
    """Shorten a timestamp to milliseconds, without T and Z."""
    return time[:23].replace("T", " ") if len(time) == len("2026-01-01T00:00:00.000000Z") else time


def _printable(text: str) -> str:
    """Escape control characters, so that events can't send commands to the terminal."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
