"""One process at a time appends to raw streams in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import StreamConflict
from tidegate.gateway.ingest import Ingest, IngestSettings, Receipt, Request
from tidegate.logs import SegmentLog
from tidegate.logs.writer_lock import WriterLock
from tidegate.services import loads


def test_second_process_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ingest.lock"
    first, second = WriterLock(path, "the gateway at http://a-long-name:8080"), WriterLock(path, "b")
    first.acquire()
    first.acquire()
    told = r"have one writer, which is the gateway at http://a-long-name:8080: send to it, or let the log be Kafka"
    with pytest.raises(StreamConflict, match=told):
        second.acquire()
    first.close()
    second.acquire()
    with pytest.raises(StreamConflict, match=r"which is b: send to it"):
        first.acquire()
    second.close()


def test_next_writer_knows_the_ids_that_the_first_has_accepted(tmp_path: Path) -> None:
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
