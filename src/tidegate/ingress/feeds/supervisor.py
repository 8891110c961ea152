"""Runs the feed of each stream in a thread, restarts it after failures, and reports its status."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, Self

from tidegate.errors import error_text
from tidegate.ingress.connections import FeedResources
from tidegate.ingress.feeds import sources
from tidegate.ingress.feeds.feed import Feed, FeedContext, FeedRequest
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import EventLog
from tidegate.logs.clock import Clock, SystemClock
from tidegate.model import timestamps
from tidegate.services.definitions import Definitions, Stream
from tidegate.timing import Backoff

_log = logging.getLogger(__name__)

BACKOFF = Backoff(first_s=0.5, max_s=30.0)
"""Delays before a feed that failed runs again. `max_s` bounds how long a broker is back before we notice."""
STEADY_S = 60.0
"""After a run of this length, earlier failures of a feed no longer count."""

FeedState = Literal["running", "waiting", "ended", "stopped"]
"""Reading; delayed until the next try; at the end of its input; stopped by the supervisor."""


class Feeds:
    """The feeds of all streams that have a source, one thread each."""

    def __init__(self, context: FeedContext, backoff: Backoff | None = None, seed: int | None = None) -> None:
        self._context, self._backoff = context, backoff or BACKOFF
        self._random = random.Random(seed)
        self._running: dict[str, _SupervisedFeed] = {}
        self._stopping: dict[str, _SupervisedFeed] = {}
        """Feeds whose `stop` is set, and that may still write."""

    def apply(self, definitions: Definitions) -> None:
        """Run the feeds of exactly these streams: start new ones, restart changed ones, stop the others.

        Never raises because of one stream: a source that can't be built or started has an error in its status, and is
        retried with backoff. Does not wait for feeds that stop. The new feed of a stream starts when its old one has
        ended, so that a stream has one writer.
        """
        streams = definitions.streams
        unchanged = {name: feed for name, feed in self._running.items() if streams.get(name) == feed.stream}
        removed = {name: feed for name, feed in self._running.items() if name not in unchanged}
        for feed in removed.values():
            feed.stop.set()
        self._stopping = {name: feed for name, feed in self._stopping.items() if not feed.join(0)} | removed
        added = [
            _SupervisedFeed(stream, self._context, self._backoff, self._random, after=self._stopping.get(name))
            for name, stream in streams.items()
            if name not in unchanged and sources.has_feed(stream.source)
        ]
        self._running = unchanged | {feed.stream.name: feed for feed in added}
        for feed in added:
            feed.start()

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the status of each feed, by stream: `state`, `source`, `events`, `refused`, `rate` (events per second
        over the last ten seconds), `restarts`, `error` (the last one, or None) and `error_time`.
        """
        return {name: feed.status() for name, feed in self._running.items()}

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Stop all feeds and wait for them. Returns False if some did not end in time."""
        for feed in self._running.values():
            feed.stop.set()
        return self.join(timeout_s)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until all feeds have ended. Returns False if some did not end in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ended = [
            feed.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            for feed in (*self._stopping.values(), *self._running.values())
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
    resources: FeedResources | None = None,
) -> Feeds:
    """Start the feed of each stream that has a source."""
    context = FeedContext(log, state, env or {}, clock or SystemClock(), resources or FeedResources())
    feeds = Feeds(context, backoff, seed)
    feeds.apply(definitions)
    return feeds


class _SupervisedFeed:
    """One feed, its thread and its status."""

    def __init__(
        self,
        stream: Stream,
        context: FeedContext,
        backoff: Backoff,
        random_: random.Random,
        *,
        after: _SupervisedFeed | None = None,
    ) -> None:
        """`after` is the previous feed of the stream, which is stopping: this one starts when it has ended."""
        self.stream, self.stop, self._after = stream, Event(), after
        self._context, self._clock, self._backoff, self._random = context, context.clock, backoff, random_
        self._writer: RawStreamWriter | None = None
        self._feed: Feed | None = None
        self._state: FeedState = "running"
        self._error: tuple[str, str] | None = None
        self._restarts = 0
        self._thread = Thread(target=self._run, name=f"feed-{stream.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def status(self) -> dict[str, Any]:
        meter = None if self._writer is None else self._writer.meter
        error, error_time = self._error or (None, None)
        return {
            "state": self._state,
            "source": type(self.stream.source).__name__.lower(),
            "events": 0 if meter is None else meter.events,
            "refused": 0 if meter is None else meter.refused,
            "rate": 0.0 if meter is None else round(meter.rate, 1),
            "restarts": self._restarts,
            "error": error,
            "error_time": error_time,
        }

    def _run(self) -> None:
        if self._after is not None:  # even if `stop` is set by now: the next feed waits for this thread only
            self._after.join()
            self._after = None
        failures = 0
        while not self.stop.is_set():
            started_s = self._clock.monotonic()
            try:
                feed = self._build()
                self._state = "running"
                feed.run(self.stop)
            except BaseException as exc:  # also SystemExit: a feed that ends its thread is reported and restarted
                if self._clock.monotonic() - started_s >= STEADY_S:
                    failures = 0
                failures += 1
                self._fail(exc, self._backoff.delay_s(failures, self._random.random))
            else:
                self._state = "stopped" if self.stop.is_set() else "ended"
                return
        self._state = "stopped"

    def _build(self) -> Feed:
        """Return the feed; build it at the first call that succeeds. In this thread, so that only this feed fails."""
        if self._feed is None:
            if self._writer is None:
                self._writer = RawStreamWriter(self._context.log, self.stream, self._clock)
            self._feed = sources.make_feed(FeedRequest(self.stream, self._writer, self._context, self._report))
        return self._feed

    def _fail(self, exc: BaseException, delay_s: float) -> None:
        text = error_text(exc)
        self._report(text)
        self._state = "waiting"
        _log.warning("stream %s: %s; again in %.1f s", self.stream.name, text, delay_s)
        if not self._clock.wait(self.stop, delay_s):
            self._restarts += 1

    def _report(self, error: str) -> None:
        self._error = error, timestamps.to_text(self._clock.now())
