"""The parser against the HTML standard's examples, and against a slow, obvious one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.client.sse import Block, Parser


def obvious(stream: bytes) -> tuple[list[Block], int | None]:
    """The standard's rules, over the whole stream at once."""
    text = stream.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    data, name, last_id, has_id, retry = "", "", "", False, None
    found = []
    for line in text.split("\n")[:-1]:
        if line == "":
            if data:
                found.append(Block(data[:-1], name or "message", last_id))
            elif has_id:
                found.append(Block(None, name or "message", last_id))
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
        elif field == "retry" and value and all(each in "0123456789" for each in value):
            retry = int(value)
    return found, retry


def parsed(pieces: Iterable[bytes]) -> tuple[list[Block], int | None]:
    parser = Parser()
    found = [block for piece in pieces for block in parser.feed(piece)]
    return found, parser.retry_ms


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(stream)) for place in places} | {0, len(stream)})
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
def test_agrees_with_the_obvious_one_however_it_is_cut(stream: bytes, places: list[int]) -> None:
    assert parsed(cut(stream, places)) == obvious(stream)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_agrees_on_anything(stream: bytes, places: list[int]) -> None:
    assert parsed(cut(stream, places)) == obvious(stream)


@pytest.mark.parametrize(
    ("stream", "blocks"),
    [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", [Block("YHOO\n+2\n10")]),
        (
            ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
            [Block("first event", id="1"), Block("second event", id="")],
        ),
        ("data\n\ndata\ndata\n\ndata:\n", [Block(""), Block("\n")]),
        ("data:test\n\ndata: test\n\n", [Block("test"), Block("test")]),
        (
            "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n",
            [Block("73857293", "add"), Block("2153", "remove")],
        ),
    ],
)
def test_examples_of_the_standard(stream: str, blocks: list[Block]) -> None:
    assert parsed([stream.encode()])[0] == blocks


def test_an_id_alone_moves_the_place_once_its_block_has_ended() -> None:
    parser = Parser("6")
    assert parser.feed(b"data: x\n\nid: 7\n") == [Block("x", id="6")]
    assert parser.feed(b"\n") == [Block(None, id="7")]


def test_a_long_line_in_many_pieces_is_joined_once() -> None:
    parser = Parser()
    for _ in range(20_000):
        assert parser.feed(b"data: x" * 10) == []
    assert len(parser.feed(b"\n\n")) == 1
