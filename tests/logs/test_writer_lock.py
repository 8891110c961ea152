"""One process at a time appends to raw streams in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import StreamConflict
from tidegate.ingress.http import Ingest, IngestReceipt, IngestRequest, IngestSettings
from tidegate.logs import SegmentLog
from tidegate.logs.writer_lock import WriterLock
from tidegate.services import loads


def test_second_process_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ingest.lock"
    first, second = WriterLock(path, "the gateway at http://a-long-name:8080"), WriterLock(path, "b")
    first.acquire()
    first.acquire()
    expected = r"have one writer, which is the gateway at http://a-long-name:8080: send to it, or let the log be Kafka"
    with pytest.raises(StreamConflict, match=expected):
        second.acquire()
    first.close()
    second.acquire()
    with pytest.raises(StreamConflict, match=r"which is b: send to it"):
        first.acquire()
    second.close()


def test_next_writer_knows_the_ids_that_the_first_has_accepted(tmp_path: Path) -> None:
    streams = loads("streams: {raw: {schema: {n: int64}}}").streams
    request = IngestRequest("raw", "application/json", {}, b'{"_id": "a", "n": 1}')

    def gateway(name: str) -> Ingest:
        ingest = Ingest(
            SegmentLog(tmp_path / "log"), IngestSettings(writer_lock=tmp_path / "ingest.lock", lock_owner=name)
        )
        ingest.define(streams)
        return ingest

    first, second = gateway("one"), gateway("two")
    (receipt,) = first.process([request])
    assert isinstance(receipt, IngestReceipt)
    assert receipt.accepted == 1
    (refused,) = second.process([request])
    assert isinstance(refused, StreamConflict)
    first.close()
    (repeated,) = second.process([request])
    assert isinstance(repeated, IngestReceipt)
    assert (repeated.accepted, repeated.duplicates) == (0, 1)
    second.close()
