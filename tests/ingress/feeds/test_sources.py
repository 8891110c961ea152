"""The list of sources: every source of a definition has a feed, and a missing library is named with its extra."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tidegate.errors import MissingDependency
from tidegate.ingress.feeds import sources
from tidegate.ingress.feeds.feed import FeedContext, FeedRequest
from tidegate.ingress.feeds.sources import SOURCES, Library, SourceKind, has_feed, make_feed
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services.definitions import Demo, Files, Http, Kafka, Mqtt, Poll, Source, Stream

EXAMPLES: tuple[Source, ...] = (Demo("gps"), Files("x.csv"), Mqtt("a"), Kafka("t"), Poll("http://x/"))


def test_every_source_but_http_is_registered_once() -> None:
    definitions = [kind.definition for kind in SOURCES]
    assert sorted(definitions, key=str) == sorted(set(get_args(Source)) - {Http}, key=str)
    assert not has_feed(Http())


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda source: type(source).__name__)
def test_registered_factory_builds_the_feed_of_its_source(source: Source, tmp_path: Path) -> None:
    pytest.importorskip("paho.mqtt.client")
    pytest.importorskip("confluent_kafka")
    log = SegmentLog(tmp_path)
    stream = Stream("s", Schema({"n": "int64"}), source=source)
    feed = make_feed(FeedRequest(stream, RawStreamWriter(log, stream), FeedContext(log), print))
    assert has_feed(source)
    assert type(feed).__name__ == f"{type(source).__name__}Feed"
    log.close()


def test_missing_library_is_named_with_the_extra_that_installs_it() -> None:
    kind = SourceKind(Mqtt, "no_such_library.client", Library("no_such_library", "no-such-package", "mqtt"))
    with pytest.raises(MissingDependency, match=r"no-such-package.*tidegate\[mqtt\]"):
        kind.factory()


def test_examples_cover_every_registered_source() -> None:
    assert {type(source) for source in EXAMPLES} == {kind.definition for kind in sources.SOURCES}
