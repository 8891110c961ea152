"""The parser against the examples of the HTML standard, and against a slow, simple one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.client.sse import SseMessage, SseParser


def parse_simply(stream: bytes) -> tuple[list[SseMessage], int | None]:
    """Apply the rules of the standard to the whole stream at once."""
    text = stream.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    data, name, last_id, has_id, retry = "", "", "", False, None
    messages = []
    for line in text.split("\n")[:-1]:
        if line == "":
            if data:
                messages.append(SseMessage(data[:-1], name or "message", last_id))
            elif has_id:
                messages.append(SseMessage(None, name or "message", last_id))
            data, name, has_id = "", "", False
            continue
        if line[0] == ":":
            continue
        field, value = line.split(":", 1) if ":" in line else (line, "")
        value = value[1:] if value[:1] == " " else value
        if field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id, has_id = value, True
        elif field == "retry" and value and all(digit in "0123456789" for digit in value):
            retry = int(value)
    return messages, retry


def parse_pieces(pieces: Iterable[bytes]) -> tuple[list[SseMessage], int | None]:
    parser = SseParser()
    messages = [message for piece in pieces for message in parser.feed(piece)]
    return messages, parser.retry_ms


def split_at(stream: bytes, positions: list[int]) -> list[bytes]:
    ends = sorted({min(position, len(stream)) for position in positions} | {0, len(stream)})
    return [stream[a:b] for a, b in itertools.pairwise(ends)]


fields = st.sampled_from([b"data", b"id", b"event", b"retry", b"", b"dat", b"data ", "ä".encode(), b"\xff"])
values = st.sampled_from(
    [b"", b" ", b"x", b" x", b"  x", b":", b"10", b" 10", b"-1", b"\0", b"\xc3", "é".encode(), b"\xef\xbb\xbf"]
)
lines = st.one_of(fields, st.builds(lambda a, b: a + b":" + b, fields, values), st.just(b""))
ends = st.sampled_from([b"\n", b"\r", b"\r\n"])
streams = st.builds(
    lambda front, parts, tail: front + b"".join(a + b for a, b in parts) + tail,
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf"]),
    st.lists(st.tuples(lines, ends), max_size=20),
    lines,
)


@given(streams, st.lists(st.integers(0, 200)))
@example(b"data: x\r\n\r\n", [8])
@example(b"data: x\r\r\n", [8, 9])
@example(b"\xef\xbb\xbfdata: x\n\n", [1, 2])
def test_agrees_with_the_simple_parser_for_any_chunks(stream: bytes, positions: list[int]) -> None:
    assert parse_pieces(split_at(stream, positions)) == parse_simply(stream)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_agrees_with_the_simple_parser_on_arbitrary_bytes(stream: bytes, positions: list[int]) -> None:
    assert parse_pieces(split_at(stream, positions)) == parse_simply(stream)


@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", [SseMessage("YHOO\n+2\n10")]),
        (
            ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
            [SseMessage("first event", id="1"), SseMessage("second event", id="")],
        ),
        ("data\n\ndata\ndata\n\ndata:\n", [SseMessage(""), SseMessage("\n")]),
        ("data:test\n\ndata: test\n\n", [SseMessage("test"), SseMessage("test")]),
        (
            "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n",
            [SseMessage("73857293", "add"), SseMessage("2153", "remove")],
        ),
    ],
)
def test_examples_of_the_standard(stream: str, messages: list[SseMessage]) -> None:
    assert parse_pieces([stream.encode()])[0] == messages


def test_message_with_only_an_id_counts_when_it_is_complete() -> None:
    parser = SseParser("6")
    assert parser.feed(b"data: x\n\nid: 7\n") == [SseMessage("x", id="6")]
    assert parser.feed(b"\n") == [SseMessage(None, id="7")]


def test_long_line_in_many_chunks_is_joined_once() -> None:
    parser = SseParser()
    for _ in range(20_000):
        assert parser.feed(b"data: x" * 10) == []
    assert len(parser.feed(b"\n\n")) == 1
