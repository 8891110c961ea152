"""One process at a time appends to raw streams in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import StreamConflict
from tidegate.gateway.ingest import Ingest, IngestSettings, Receipt, Request
from tidegate.logs import SegmentLog
from tidegate.logs.sole import SoleWriter
from tidegate.services import loads


def test_one_at_a_time_and_the_other_is_told_who(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ingest.lock"
    first, second = SoleWriter(path, "the gateway at http://a-long-name:8080"), SoleWriter(path, "b")
    first.need()
    first.need()
    told = r"have one writer, which is the gateway at http://a-long-name:8080: send to it, or let the log be Kafka"
    with pytest.raises(StreamConflict, match=told):
        second.need()
    first.close()
    second.need()
    with pytest.raises(StreamConflict, match=r"which is b: send to it"):
        first.need()
    second.close()


def test_who_takes_over_knows_the_ids_that_the_other_took(tmp_path: Path) -> None:
    streams = loads("streams: {raw: {schema: {n: int64}}}").streams
    asked = Request("raw", "application/json", {}, b'{"_id": "a", "n": 1}')

    def gateway(name: str) -> Ingest:
        made = Ingest(SegmentLog(tmp_path / "log"), IngestSettings(sole=tmp_path / "ingest.lock", name=name))
        made.define(streams)
        return made

    first, second = gateway("one"), gateway("two")
    (taken,) = first.take([asked])
    assert isinstance(taken, Receipt)
    assert taken.accepted == 1
    (refused,) = second.take([asked])
    assert isinstance(refused, StreamConflict)
    first.close()
    (known,) = second.take([asked])
    assert isinstance(known, Receipt)
    assert (known.accepted, known.duplicates) == (0, 1)
    second.close()
