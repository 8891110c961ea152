"""A lane: one read of the log and one matching pass for all subscribers at the same position."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.delivery.batch import Batch, reaches
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.subscriber import LaneMembership, Pick, Sink
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.logs import Cursor, EventLog
from tidegate.matching import Matcher
from tidegate.model import Schema

SPARE_ENCODINGS = 64
"""Encodings that are kept beyond two per member. With more, those of members that have left are dropped."""

Output = tuple[Sink, int, Any]
"""A sink, its epoch when the output was rendered, and the rendered output."""


@dataclass(frozen=True, slots=True)
class Step:
    """The batch that one pass has read, and its output for each sink."""

    batch: Batch
    outputs: list[Output]
    started_at: float
    """When the read started, on the clock of `time.perf_counter`."""


class Lane:
    """A position in a stream, and the members that read from there on.

    The thread of one worker owns it; only `delivered` belongs to the event loop. A member may have received events
    that the lane has not read yet: those are below its `skip_below` offsets, and are skipped.
    """

    def __init__(
        self, log: EventLog, service: str, schema: Schema, position: Cursor, meaning: Meaning | None = None
    ) -> None:
        """`meaning` evaluates filters with ~."""
        self.service, self.position = service, position
        self.members: dict[str, LaneMembership] = {}
        self.delivered = position
        """The end of the last batch that the event loop has written."""
        self.matched = 0
        """Number of pairs of an event and a member that matched so far."""
        self._log = log
        self._schema, self._meaning = schema, meaning
        self._matcher = Matcher(schema, semantics=meaning)
        self._narrow: dict[Schema, Matcher] = {}
        """Matchers of filters with ~ whose members don't see all attributes, by visible schema: ~ reads every one."""
        self._unfiltered: dict[str, LaneMembership] = {}
        self._encodings: dict[Encoding, Encoding] = {}
        self._skips: dict[str, Mapping[str, int]] = {}

    def admit(self, member: LaneMembership, position: Cursor) -> None:
        """Add a member whose position is at or after the lane's. It replaces an older one of the same subscriber."""
        subscriber = member.subscriber
        if subscriber.id in self.members:
            self.remove(self.members[subscriber.id])
        if subscriber.filter is None:
            self._unfiltered[subscriber.id] = member
        else:
            self._matcher_of(subscriber.filter).add(subscriber.id, subscriber.filter)
        self.members[subscriber.id] = member
        # Each event is looked up by its encoding. Equal encodings become one object, which a dict finds faster.
        if len(self._encodings) > 2 * len(self.members) + SPARE_ENCODINGS:
            self._encodings.clear()
        member.encoding = self._encodings.setdefault(member.encoding, member.encoding)
        lead = {p: at for p, at in position.offsets.items() if at > self.position.offsets.get(p, -1)}
        if lead:
            member.skip_below = self._skips[subscriber.id] = lead

    def remove(self, member: LaneMembership) -> bool:
        """Remove a member. Returns False if it is not in this lane."""
        id_ = member.subscriber.id
        if self.members.get(id_) is not member:
            return False
        del self.members[id_]
        if self._unfiltered.pop(id_, None) is None:
            self._remove_filter(id_)
        self._skips.pop(id_, None)
        return True

    def _matcher_of(self, filter_: Filter) -> Matcher:
        visible = filter_.schema
        if not filter_.tree.is_semantic or visible is None or visible == self._schema:
            return self._matcher
        if visible not in self._narrow:
            self._narrow[visible] = Matcher(visible, semantics=self._meaning)
        return self._narrow[visible]

    def _remove_filter(self, id_: str) -> None:
        if id_ in self._matcher:
            self._matcher.remove(id_)
            return
        visible, matcher = next((visible, matcher) for visible, matcher in self._narrow.items() if id_ in matcher)
        matcher.remove(id_)
        if not len(matcher):
            matcher.close()
            del self._narrow[visible]

    def read(self, position: Cursor, max_events: int) -> Batch:
        """Read a batch from any position, without moving the lane."""
        return Batch(self.service, position, self._log.read(self.service, position, max_events))

    def step(self, max_events: int) -> Step:
        """Read the next batch, match it once for all members, render it, and move the lane behind it."""
        started_at = time.perf_counter()
        batch = self.read(self.position, max_events)
        picks_by_sink = self._picks(batch)
        outputs = [(sink, epoch, sink.render(batch, picks)) for (sink, epoch), picks in picks_by_sink.items()]
        self.position = batch.end
        return Step(batch, outputs, started_at)

    def caught_up_members(self) -> list[LaneMembership]:
        """Return the members whose `skip_below` the lane has reached since the last call.

        The event loop resets their `skip_below` after it has written the batch.
        """
        members = []
        for id_, skip_below in list(self._skips.items()):
            if reaches(self.position, Cursor(self.position.generation, skip_below)):
                del self._skips[id_]
                members.append(self.members[id_])
        return members

    def close(self) -> None:
        """Stop the background work of the matchers."""
        for matcher in (self._matcher, *self._narrow.values()):
            matcher.close()

    def _picks(self, batch: Batch) -> Mapping[tuple[Sink, int], list[Pick]]:
        """Return the matching events and their members for each sink and epoch, in the order of the events."""
        picks_by_sink: dict[tuple[Sink, int], list[Pick]] = {}
        for matcher in (self._matcher, *self._narrow.values()):
            if not len(matcher) or not len(batch):
                continue
            events, ids = matcher.match(batch.events).pairs()
            for event, id_ in zip(events.tolist(), ids.tolist(), strict=True):
                member = self.members[id_]
                picks_by_sink.setdefault((member.sink, member.epoch), []).append((event, member))
        for member in self._unfiltered.values():
            key = member.sink, member.epoch
            picks_by_sink.setdefault(key, []).extend((event, member) for event in range(len(batch)))
        for key, picks in picks_by_sink.items():
            if len(key[0].subscribers) > 1:
                picks.sort(key=lambda pick: pick[0])
            if self._skips:
                picks_by_sink[key] = [
                    (event, member)
                    for event, member in picks
                    if not (member.skip_below and batch.is_below(event, member.skip_below))
                ]
            self.matched += len(picks_by_sink[key])
        return {key: picks for key, picks in picks_by_sink.items() if picks}
