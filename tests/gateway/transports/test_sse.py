"""Shared output of equal SSE subscribers is the same as the output for each alone."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.running import record
from tidegate.delivery.batch import Batch
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.subscriber import LaneMembership, Subscriber
from tidegate.gateway.telemetry.metrics import Tally
from tidegate.gateway.transports.protocol import Socket
from tidegate.gateway.transports.sse import SseSink, chunk
from tidegate.logs import Cursor, Read, SegmentLog

NOBODY = cast(Socket, None)
"""Rendering writes to no socket."""
EVENTS = 6
ENCODINGS = (Encoding("plain"), Encoding(), Encoding("plain", ("vid",)))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cursor, Read]:
    folder: Path = tmp_path_factory.mktemp("log")
    log = SegmentLog(folder)
    log.create("gps")
    log.append("gps", "0", [record(n) for n in range(EVENTS)])
    begin = log.begin("gps")
    read = log.read("gps", begin, EVENTS)
    log.close()
    return begin, read


@given(
    subscribers=st.lists(
        st.tuples(st.sampled_from(ENCODINGS), st.booleans(), st.sets(st.integers(0, EVENTS - 1), min_size=1)),
        max_size=8,
    )
)
def test_shared_block_equals_the_block_of_each_subscriber(
    subscribers: list[tuple[Encoding, bool, set[int]]], found: tuple[Cursor, Read]
) -> None:
    begin, read = found
    batch = Batch("gps", begin, read)
    for n, (encoding, has_floor, events) in enumerate(subscribers):
        sink = SseSink(NOBODY, Tally())
        member = LaneMembership(Subscriber(str(n), "gps", None, sink, encoding, begin))
        member.skip_below = {"0": 100, "another": 7} if has_floor else None
        alone = Batch("gps", begin, read)
        blocks = [
            b"id: %s\ndata: %s\n\n" % (alone.cursor(k, member.skip_below).encode(), alone.encoded(k, encoding))
            for k in sorted(events)
        ]
        assert sink.render(batch, [(k, member) for k in sorted(events)]) == (len(blocks), chunk(b"".join(blocks)))
