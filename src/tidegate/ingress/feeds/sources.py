"""The list of sources. A new source is one module with a function `make_feed`, and one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tidegate.errors import MissingDependency, SourceError
from tidegate.ingress.feeds.feed import Feed, FeedRequest
from tidegate.services.definitions import Demo, Files, Http, Kafka, Mqtt, Poll, Source

FeedFactory = Callable[[FeedRequest], Feed]
"""Builds a feed. Does no I/O. Raises SourceError for settings that can't work."""


@dataclass(frozen=True, slots=True)
class Library:
    """An optional library: the module that is imported, its package, and the extra of tidegate that installs it."""

    module: str
    package: str
    extra: str


@dataclass(frozen=True, slots=True)
class SourceKind:
    """How the feed of one kind of source is built."""

    definition: type[Source]
    """The class of the source in service definitions."""
    module: str
    """Module with the FeedFactory `make_feed`; imported at first use, since it may need a library of an extra."""
    library: Library | None = None
    """What the module imports that no other source needs."""

    def factory(self) -> FeedFactory:
        """Import and return the factory. Raises MissingDependency if a library is not installed."""
        try:
            factory: FeedFactory = import_module(self.module).make_feed
        except ModuleNotFoundError as exc:
            missing = (exc.name or "").partition(".")[0]
            library = self.library
            if library is None or library.module != missing:
                raise MissingDependency(missing, "spark") from exc
            raise MissingDependency(library.package, library.extra) from exc
        return factory


SOURCES = (
    SourceKind(Demo, "tidegate.ingress.feeds.demo"),
    SourceKind(Files, "tidegate.ingress.feeds.files"),
    SourceKind(Mqtt, "tidegate.ingress.feeds.mqtt", Library("paho", "paho-mqtt", "mqtt")),
    SourceKind(Poll, "tidegate.ingress.feeds.poll"),
    SourceKind(Kafka, "tidegate.ingress.feeds.kafka", Library("confluent_kafka", "confluent-kafka", "kafka")),
)
"""Every source with a feed. `Http` has none: producers send events to the gateway."""

_BY_DEFINITION = {kind.definition: kind for kind in SOURCES}


def has_feed(source: Source) -> bool:
    """True if a feed reads this source; False if producers send the events themselves."""
    return not isinstance(source, Http)


def make_feed(request: FeedRequest) -> Feed:
    """Build the feed of a stream. Does no I/O. Raises SourceError, or MissingDependency."""
    stream = request.stream
    kind = _BY_DEFINITION.get(type(stream.source))
    if kind is None:
        raise SourceError(f"stream {stream.name!r}: its source {stream.source!r} has no feed")
    try:
        return kind.factory()(request)
    except SourceError as exc:
        raise SourceError(f"stream {stream.name!r}: {exc}") from exc
