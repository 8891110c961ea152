"""Runs one feed a stream, keeps it running, and says how it is."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, Protocol, Self

from tidegate.errors import MissingDependency, SourceError, TidegateError, error_text
from tidegate.logs import EventLog
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.intake import Intake
from tidegate.model import timestamps
from tidegate.pipelines.resources import OR_STATE_AGAIN, KafkaConnection, MqttConnection, RunnerResources
from tidegate.services.definitions import Definitions, Demo, Files, Http, Kafka, Mqtt, Stream
from tidegate.timing import Backoff

_log = logging.getLogger(__name__)

BACKOFF = Backoff(first_s=0.5, max_s=30.0)
"""Delays before a feed that failed runs again: a broker that comes back is noticed within the longest."""
STEADY_S = 60.0
"""After a run of this length, earlier failures of a feed are forgotten."""

State = Literal["running", "waiting", "ended", "stopped"]
"""Reading; until the next try; at the end of its input; because it was told to."""


class Feed(Protocol):
    """Brings one source into one raw stream."""

    def run(self, stop: Event) -> None:
        """Append until the input ends or `stop` is set.

        An error ends it; it may be run again, and goes on where the log is.
        """


@dataclass(frozen=True)
class Surroundings:
    """What feeds are made with beside their stream."""

    log: EventLog
    state: Path | None = None
    """A folder for positions; without one a feed reads the whole raw stream to find where it was."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Where `password_env` is looked up."""
    clock: Clock = field(default_factory=SystemClock)
    resources: RunnerResources = field(default_factory=RunnerResources)
    """Connections and folders that the profile lists."""


Report = Callable[[str], None]
"""Takes what went wrong while a feed goes on."""


def make_feed(stream: Stream, intake: Intake, around: Surroundings, report: Report) -> Feed | None:
    """The feed of a stream; None where events come by themselves. Does no I/O; bad settings: `SourceError`."""
    source, resources = stream.source, around.resources
    try:
        match source:
            case Http():
                return None
            case Demo():
                from tidegate.pipelines.sources.demo import DemoFeed

                return DemoFeed(source, intake, around.clock)
            case Files():
                from tidegate.pipelines.sources.files import FilesFeed

                opener = resources.opener(source.path, stream.origin)
                return FilesFeed(source, intake, around.state, around.clock, report, opener)
            case Mqtt():
                from tidegate.pipelines.sources.mqtt import MqttFeed

                return MqttFeed(source, intake, around.env, report, _mqtt(source, stream, resources))
            case Kafka():
                from tidegate.pipelines.sources.kafka import KafkaFeed

                connection = _kafka(source, stream, resources)
                return KafkaFeed(source, intake, around.state, around.clock, report, connection)
    except ModuleNotFoundError as exc:
        raise _missing(exc) from exc
    except SourceError as exc:
        raise SourceError(f"stream {stream.name!r}: {exc}") from exc


def _mqtt(source: Mqtt, stream: Stream, resources: RunnerResources) -> MqttConnection | None:
    """The connection that a source names; None: it names a host of its own, which only the operator's may."""
    if source.connection is not None:
        return resources.mqtt(source.connection)
    _need_operator(stream)
    return None


def _kafka(source: Kafka, stream: Stream, resources: RunnerResources) -> KafkaConnection | None:
    if source.connection is not None:
        return resources.kafka(source.connection)
    _need_operator(stream)
    return None


def _need_operator(stream: Stream) -> None:
    if stream.origin != "operator":
        raise SourceError(
            "a definition that came over the network names no host of its own: expected a connection of the profile, "
            f"{OR_STATE_AGAIN}"
        )


def _missing(exc: ModuleNotFoundError) -> TidegateError:
    package = (exc.name or "").partition(".")[0]
    extras = {"paho": ("paho-mqtt", "mqtt"), "confluent_kafka": ("confluent-kafka", "kafka")}
    return MissingDependency(*extras.get(package, (package, "spark")))


class Feeds:
    """The feeds of some streams, one thread each."""

    def __init__(self, around: Surroundings, backoff: Backoff | None = None, seed: int | None = None) -> None:
        self._around, self._backoff = around, backoff or BACKOFF
        self._chance = random.Random(seed)
        self._running: dict[str, _Supervised] = {}
        self._ending: dict[str, _Supervised] = {}
        """Feeds that were told to stop, and may still write."""

    def apply(self, definitions: Definitions) -> None:
        """Run the feeds of just these streams: new ones start, changed ones start again, others stop.

        Never raises for one stream's sake: a source that can't be built or started is an error in its status, and
        is tried again with backoff. Does not wait for feeds that stop; a stream's new feed begins when its old one has
        ended, so that a stream has one writer.
        """
        kept = {name: each for name, each in self._running.items() if definitions.streams.get(name) == each.stream}
        gone = {name: each for name, each in self._running.items() if name not in kept}
        for each in gone.values():
            each.stop.set()
        self._ending = {name: each for name, each in self._ending.items() if not each.join(0)} | gone
        fresh = [
            _Supervised(stream, self._around, self._backoff, self._chance, after=self._ending.get(name))
            for name, stream in definitions.streams.items()
            if name not in kept and not isinstance(stream.source, Http)
        ]
        self._running = kept | {each.stream.name: each for each in fresh}
        for each in fresh:
            each.start()

    def status(self) -> dict[str, dict[str, Any]]:
        """How each stream's feed is: `state`, `source`, `events`, `refused`, `rate` (events a second over the last
        ten), `restarts`, `error` (the last one, or None) and `error_time`.
        """
        return {name: each.status() for name, each in self._running.items()}

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Stop all and wait for them; say whether all ended in time."""
        for each in self._running.values():
            each.stop.set()
        return self.join(timeout_s)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for feeds whose input ends, and say whether all ended in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ended = [
            each.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            for each in (*self._ending.values(), *self._running.values())
        ]
        return all(ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_feeds(
    definitions: Definitions,
    log: EventLog,
    *,
    state: Path | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    backoff: Backoff | None = None,
    seed: int | None = None,
    resources: RunnerResources | None = None,
) -> Feeds:
    """Start the feed of each stream that has a source."""
    feeds = Feeds(
        Surroundings(log, state, env or {}, clock or SystemClock(), resources or RunnerResources()), backoff, seed
    )
    feeds.apply(definitions)
    return feeds


class _Supervised:
    """One feed, its thread and its status."""

    def __init__(
        self,
        stream: Stream,
        around: Surroundings,
        backoff: Backoff,
        chance: random.Random,
        *,
        after: _Supervised | None = None,
    ) -> None:
        """`after` is the stream's feed until now, which was told to stop: this one begins when it has ended."""
        self.stream, self.stop, self._after = stream, Event(), after
        self._around, self._clock, self._backoff, self._chance = around, around.clock, backoff, chance
        self._intake: Intake | None = None
        self._feed: Feed | None = None
        self._state: State = "running"
        self._error: tuple[str, str] | None = None
        self._restarts = 0
        self._thread = Thread(target=self._run, name=f"feed-{stream.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def status(self) -> dict[str, Any]:
        meter = None if self._intake is None else self._intake.meter
        error, when = self._error or (None, None)
        return {
            "state": self._state,
            "source": type(self.stream.source).__name__.lower(),
            "events": 0 if meter is None else meter.events,
            "refused": 0 if meter is None else meter.refused,
            "rate": 0.0 if meter is None else round(meter.rate, 1),
            "restarts": self._restarts,
            "error": error,
            "error_time": when,
        }

    def _run(self) -> None:
        if self._after is not None:  # also when this one is told to stop meanwhile: the next one waits for this thread
            self._after.join()
            self._after = None
        failures = 0
        while not self.stop.is_set():
            begin = self._clock.monotonic()
            try:
                feed = self._built()
                self._state = "running"
                feed.run(self.stop)
            except BaseException as exc:  # SystemExit too: a feed that ends its thread must say so, and run again
                if self._clock.monotonic() - begin >= STEADY_S:
                    failures = 0
                failures += 1
                self._fail(exc, self._backoff.delay_s(failures, self._chance.random))
            else:
                self._state = "stopped" if self.stop.is_set() else "ended"
                return
        self._state = "stopped"

    def _built(self) -> Feed:
        """Return the feed, built at the first call that succeeds: in this thread, so that a failure is its own."""
        if self._feed is None:
            if self._intake is None:
                self._intake = Intake(self._around.log, self.stream, self._clock)
            self._feed = make_feed(self.stream, self._intake, self._around, self._note)
            if self._feed is None:
                raise SourceError(f"stream {self.stream.name!r}: its source {self.stream.source!r} has no feed")
        return self._feed

    def _fail(self, exc: BaseException, delay_s: float) -> None:
        said = error_text(exc)
        self._note(said)
        self._state = "waiting"
        _log.warning("stream %s: %s; again in %.1f s", self.stream.name, said, delay_s)
        if not self._clock.wait(self.stop, delay_s):
            self._restarts += 1

    def _note(self, error: str) -> None:
        self._error = error, timestamps.to_text(self._clock.now())
