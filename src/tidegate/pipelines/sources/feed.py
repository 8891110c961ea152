"""Runs one feed a stream, keeps it running, and says how it is."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, Protocol, Self

from tidegate.errors import MissingDependency, SourceError, TidegateError
from tidegate.logs import EventLog
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.intake import Intake
from tidegate.model import timestamps
from tidegate.pipelines.resources import OR_STATE_AGAIN, KafkaConnection, MqttConnection, RunnerResources
from tidegate.services.definitions import Definitions, Demo, Files, Http, Kafka, Mqtt, Stream

_log = logging.getLogger(__name__)

State = Literal["running", "waiting", "ended", "stopped"]
"""Reading; until the next try; at the end of its input; because it was told to."""


class Feed(Protocol):
    """Brings one source into one raw stream."""

    def run(self, stop: Event) -> None:
        """Append until the input ends or `stop` is set.

        An error ends it; it may be run again, and goes on where the log is.
        """


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a feed that failed runs again: any time up to a limit that doubles."""

    first_s: float = 0.5
    most_s: float = 30.0
    """A broker that comes back is noticed within this."""
    forgive_s: float = 60.0
    """A feed that ran so long starts anew with the first."""

    def delay_s(self, failures: int, chance: random.Random) -> float:
        """Wait after so many failures in a row. Between half and all of the limit: feeds that failed
        together don't return together, and none returns at once.
        """
        limit = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 60))
        return limit * chance.uniform(0.5, 1.0)


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
    """The feed of a stream; None where events come by themselves. Does no I/O; bad settings are refused here."""
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
        self._around, self._backoff = around, backoff or Backoff()
        self._chance = random.Random(seed)
        self._running: dict[str, _Supervised] = {}

    def apply(self, definitions: Definitions) -> None:
        """Run the feeds of just these streams: new ones start, changed ones start again, others stop.

        Where one of them can't be made, nothing changes.
        """
        kept = {name: each for name, each in self._running.items() if definitions.streams.get(name) == each.stream}
        fresh = [
            _Supervised(stream, self._around, self._backoff, self._chance)
            for name, stream in definitions.streams.items()
            if name not in kept and not isinstance(stream.source, Http)
        ]
        gone = [each for name, each in self._running.items() if name not in kept]
        for each in gone:
            each.stop.set()
        for each in gone:
            each.join()
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
        ended = [each.join(timeout_s) for each in self._running.values()]
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
    """Start the feed of each stream that has a source; a source that can't be understood is refused at once."""
    feeds = Feeds(
        Surroundings(log, state, env or {}, clock or SystemClock(), resources or RunnerResources()), backoff, seed
    )
    feeds.apply(definitions)
    return feeds


class _Supervised:
    """One feed, its thread and how it is."""

    def __init__(self, stream: Stream, around: Surroundings, backoff: Backoff, chance: random.Random) -> None:
        self.stream, self.stop = stream, Event()
        self._clock, self._backoff, self._chance = around.clock, backoff, chance
        self._intake = Intake(around.log, stream, around.clock)
        self._feed = make_feed(stream, self._intake, around, self._note)
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
        meter = self._intake.meter
        error, when = self._error or (None, None)
        return {
            "state": self._state,
            "source": type(self.stream.source).__name__.lower(),
            "events": meter.events,
            "refused": meter.refused,
            "rate": round(meter.rate, 1),
            "restarts": self._restarts,
            "error": error,
            "error_time": when,
        }

    def _run(self) -> None:
        assert self._feed is not None
        failures = 0
        while not self.stop.is_set():
            begin = self._clock.monotonic()
            try:
                self._state = "running"
                self._feed.run(self.stop)
            except Exception as exc:  # the feed's thread has nobody else to tell
                if self._clock.monotonic() - begin >= self._backoff.forgive_s:
                    failures = 0
                failures += 1
                self._fail(exc, self._backoff.delay_s(failures, self._chance))
            else:
                self._state = "stopped" if self.stop.is_set() else "ended"
                return
        self._state = "stopped"

    def _fail(self, exc: Exception, delay_s: float) -> None:
        said = str(exc) if isinstance(exc, TidegateError) else f"{type(exc).__name__}: {exc}"
        self._note(said)
        self._state = "waiting"
        _log.warning("stream %s: %s; again in %.1f s", self.stream.name, said, delay_s)
        if not self._clock.wait(self.stop, delay_s):
            self._restarts += 1

    def _note(self, error: str) -> None:
        self._error = error, timestamps.to_text(self._clock.now())
