"""The filter language: parse, compile, evaluate one event and a batch; and the six cases of the paper."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import measure, peers, workloads
from tidegate import Filter, TidegateError

ROWS = 1_000_000


def run(quick: bool, as_json: bool, out: Path) -> None:
    """Measure everything, print it and write `filters.json`."""
    repeats = 7 if quick else 31
    console = Console(stderr=as_json)
    steps: dict[str, Callable[[int], Any]] = {
        "parse": parsing,
        "hostile texts": hostile,
        "one event": one_event,
        "batch": batches,
        "parameters and covering": changing,
        "the paper's six cases": six_cases,
    }
    results: dict[str, Any] = {"benchmark": "filters", "environment": measure.environment(), "repeats": repeats}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("filters", total=len(steps))
        for name, step in steps.items():
            progress.update(task, description=name)
            results[name] = step(repeats)
            progress.advance(task)
    path = measure.write(out, "filters", results)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        _print(console, results)
        console.print(f"written to {path}")


def _row(what: str, value: float, unit: str, target: str, peer: str = "", peer_value: float = 0.0) -> dict[str, Any]:
    row: dict[str, Any] = {"what": what, "value": round(value, 3), "unit": unit, "target": target}
    if peer:
        row |= {"peer": peer, "peer_value": round(peer_value, 3), "ratio": round(value / peer_value, 3)}
    return row


def parsing(repeats: int) -> list[dict[str, Any]]:
    """Ten predicates: from text to a compiled filter."""
    text, schema = workloads.TEN_PREDICATES, workloads.VEHICLE
    by_lark = peers.lark_parser()
    lark_us = measure.seconds(lambda: by_lark(text), repeats) * 1e6

    def whole(schema_: Any) -> Callable[[], object]:
        return lambda: Filter(text, schema_).matches(workloads.EVENT)

    return [
        _row(
            "parse, type and compile",
            measure.seconds(whole(schema), repeats) * 1e6,
            "us",
            "< 300",
            "lark, tree alone",
            lark_us,
        ),
        _row(
            "the same without a schema",
            measure.seconds(whole(None), repeats) * 1e6,
            "us",
            "< 300",
            "lark, tree alone",
            lark_us,
        ),
    ]


def hostile(repeats: int) -> list[dict[str, Any]]:
    """The slowest hostile text, compared with a plain one of the same length."""
    taken = {text: measure.seconds(lambda text=text: _read(text), 1) for text in workloads.HOSTILE}  # type: ignore[misc]
    dearest = max(taken, key=lambda text: taken[text])
    value, plain = (measure.seconds(lambda text=text: _read(text), repeats) * 1e3 for text in (dearest, workloads.LONG))  # type: ignore[misc]
    return [_row(f"{dearest[:24]}… ({len(dearest)} characters)", value, "ms", "< 50", "a plain one", plain)]


def _read(text: str) -> Filter | TidegateError:
    try:
        return Filter(text)
    except TidegateError as error:
        return error


def one_event(repeats: int) -> list[dict[str, Any]]:
    """`matches` with one dict."""
    event = workloads.EVENT
    hand = measure.seconds(lambda: peers.by_hand(event), repeats) * 1e6
    rows = []
    for name, schema in (("two predicates", None), ("two predicates, typed", workloads.VEHICLE)):
        made = Filter(workloads.TWO_PREDICATES, schema)
        took = measure.seconds(lambda made=made: made.matches(event), repeats) * 1e6  # type: ignore[misc]
        rows.append(_row(name, took, "us", "< 3", "a lambda by hand", hand))
    ten = Filter(workloads.TEN_PREDICATES, workloads.VEHICLE)
    assert ten.matches(event)
    rows.append(_row("ten predicates, all true", measure.seconds(lambda: ten.matches(event), repeats) * 1e6, "us", ""))
    return rows


def batches(repeats: int) -> list[dict[str, Any]]:
    """The mask of five numeric predicates over a million rows."""
    batch = workloads.numeric_batch(ROWS)
    made = Filter(workloads.FIVE_NUMERIC)
    assert made.mask(batch).tolist() == peers.numpy_by_hand(batch).tolist()
    ours = ROWS / measure.seconds(lambda: made.mask(batch), repeats) / 1e6
    by_numpy = ROWS / measure.seconds(lambda: peers.numpy_by_hand(batch), repeats) / 1e6
    by_arrow = ROWS / measure.seconds(lambda: peers.arrow_by_hand(batch), repeats) / 1e6
    unit = "M rows/s"
    return [
        _row("mask, five predicates", ours, unit, ">= 20", "numpy by hand", by_numpy),
        _row("mask, five predicates", ours, unit, ">= 20", "pyarrow.compute by hand", by_arrow),
    ]


def changing(repeats: int) -> list[dict[str, Any]]:
    """New parameters, and one covering test."""
    made = Filter("speed > %0 AND vid LIKE 'B%'", workloads.VEHICLE, ["60"])
    fresh = measure.seconds(lambda: Filter(made.text, workloads.VEHICLE, ["80"]), repeats) * 1e6
    wide, narrow = Filter("speed > 50 AND lane < 3"), Filter("speed > 60 AND lane IN (1, 2) AND vid = 'B'")
    assert wide.covers(narrow)
    return [
        _row(
            "with_params",
            measure.seconds(lambda: made.with_params(["80"]), repeats) * 1e6,
            "us",
            "",
            "a new Filter",
            fresh,
        ),
        _row("covers, both normalised", measure.seconds(lambda: wide.covers(narrow), repeats) * 1e6, "us", ""),
    ]


def six_cases(repeats: int) -> list[dict[str, Any]]:
    """Simple and nested data with no, a simple and a complex filter, as in the paper's middleware.

    The delay is that of one message: sent over a TCP connection on loopback,
    received, decoded, filtered, handed on.
    """
    rows = []
    for data, filters in (("simple", workloads.SIMPLE), ("nested", workloads.NESTED)):
        messages = workloads.messages(nested=data == "nested")
        delays: dict[str, float] = {}
        for rule, text in filters.items():
            with _connection() as (sender, receiver):
                deliver = _delivery(messages, text, sender, receiver)
                delays[rule] = measure.seconds(deliver, repeats) / len(messages) * 1e6
            row = _row(f"{data} data, {rule} filter", delays[rule], "us", "")
            row["events/s"] = round(1e6 / delays[rule])
            if rule != "no":
                row |= {"peer": "no filter", "peer_value": round(delays["no"], 3)}
                row["ratio"] = round(delays[rule] / delays["no"], 3)
            rows.append(row)
        growth = (delays["complex"] / delays["simple"] - 1) * 100
        what = f"{data} data, complex over simple: five times the nodes"
        rows.append({"what": what, "value": round(growth, 1), "unit": "% more", "target": "the paper: about 15 %"})
    return rows


@contextmanager
def _connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A TCP connection on loopback, both ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with sender, receiver:
        yield sender, receiver


def _delivery(
    messages: list[bytes], text: str | None, sender: socket.socket, receiver: socket.socket
) -> Callable[[], object]:
    """Send each message, receive and decode it, and forward the matching ones."""
    matches = Filter(text).matches if text is not None else None

    def deliver() -> list[Any]:
        handed = []
        for message in messages:
            sender.sendall(message)
            event = json.loads(receiver.recv(65536))
            if matches is None or matches(event):
                handed.append(event)
        return handed

    return deliver


def _print(console: Console, results: dict[str, Any]) -> None:
    environment = results["environment"]
    console.print("{cpu}, {cores} cores, Python {python}, commit {commit}".format(**environment))
    for name, rows in results.items():
        if not isinstance(rows, list):
            continue
        table = Table(title=name, title_justify="left", box=None, padding=(0, 2))
        for title in ("what", "measured", "target", "peer", "ratio"):
            table.add_column(title)
        for row in rows:
            peer = f"{row['peer']}: {row['peer_value']:g}" if "peer" in row else ""
            table.add_row(
                row["what"], f"{row['value']:g} {row['unit']}", row["target"], peer, f"{row.get('ratio', '')}"
            )
        console.print(table)
