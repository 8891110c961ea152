"""Subscribers who read the same stretch of a stream: one read, one matching pass for all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.delivery.batch import Batch, reaches
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.subscriber import Member, Pick, Sink
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.logs import Cursor, EventLog
from tidegate.matching import Matcher
from tidegate.model import Schema

FEW_ENCODINGS = 64
"""Beyond twice the members: more are those of members who have left."""

Output = tuple[Sink, int, Any]
"""Where to, in which epoch of it, and what was rendered."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one pass has read, and what of it goes where."""

    batch: Batch
    outputs: list[Output]
    begun: float
    """When it was read, by the clock of `perf_counter`."""


class Lane:
    """A position, and who reads from there on.

    One thread owns it; `delivered` is the event loop's. A member may have seen
    more than the lane, its floor: of that it gets nothing again.
    """

    def __init__(
        self, log: EventLog, service: str, schema: Schema, position: Cursor, meaning: Meaning | None = None
    ) -> None:
        """`meaning` is what filters with ~ are evaluated by."""
        self.service, self.position = service, position
        self.members: dict[str, Member] = {}
        self.delivered = position
        """Where all that was handed over ends."""
        self.matched = 0
        """Pairs of event and subscriber so far."""
        self._log = log
        self._schema, self._meaning = schema, meaning
        self._matcher = Matcher(schema, semantics=meaning)
        self._narrow: dict[Schema, Matcher] = {}
        """The filters with ~ of members who do not see all attributes, by what they see: ~ reads whatever there is."""
        self._everything: dict[str, Member] = {}
        self._encodings: dict[Encoding, Encoding] = {}
        self._floors: dict[str, Mapping[str, int]] = {}

    def admit(self, member: Member, position: Cursor) -> None:
        """Take in a member whose position reaches the lane's, in place of an older one of its subscriber."""
        subscriber = member.subscriber
        if subscriber.id in self.members:
            self.remove(self.members[subscriber.id])
        if subscriber.filter is None:
            self._everything[subscriber.id] = member
        else:
            self._matcher_of(subscriber.filter).add(subscriber.id, subscriber.filter)
        self.members[subscriber.id] = member
        # What was encoded is found by it for every event: much sooner where equal ones are the same.
        if len(self._encodings) > 2 * len(self.members) + FEW_ENCODINGS:
            self._encodings.clear()
        member.encoding = self._encodings.setdefault(member.encoding, member.encoding)
        beyond = {p: at for p, at in position.offsets.items() if at > self.position.offsets.get(p, -1)}
        if beyond:
            member.floor = self._floors[subscriber.id] = beyond

    def remove(self, member: Member) -> bool:
        """Let go of a member; say whether it was here."""
        id_ = member.subscriber.id
        if self.members.get(id_) is not member:
            return False
        del self.members[id_]
        if self._everything.pop(id_, None) is None:
            self._forget(id_)
        self._floors.pop(id_, None)
        return True

    def _matcher_of(self, filter_: Filter) -> Matcher:
        seen = filter_.schema
        if not filter_.tree.is_semantic or seen is None or seen == self._schema:
            return self._matcher
        if seen not in self._narrow:
            self._narrow[seen] = Matcher(seen, semantics=self._meaning)
        return self._narrow[seen]

    def _forget(self, id_: str) -> None:
        if id_ in self._matcher:
            self._matcher.remove(id_)
            return
        seen, matcher = next((seen, each) for seen, each in self._narrow.items() if id_ in each)
        matcher.remove(id_)
        if not len(matcher):
            matcher.close()
            del self._narrow[seen]

    def read(self, position: Cursor, most: int) -> Batch:
        """Read on from somewhere."""
        return Batch(self.service, position, self._log.read(self.service, position, most))

    def step(self, most: int) -> Step:
        """Read what there is, match it once for all, and move on."""
        begun = time.perf_counter()
        batch = self.read(self.position, most)
        picks = self._picks(batch)
        outputs = [(sink, epoch, sink.render(batch, found)) for (sink, epoch), found in picks.items()]
        self.position = batch.end
        return Step(batch, outputs, begun)

    def lowered(self) -> list[Member]:
        """Those whose floor the lane has reached: the loop forgets it when all that has been handed over."""
        found = []
        for id_, floor in list(self._floors.items()):
            if reaches(self.position, Cursor(self.position.generation, floor)):
                del self._floors[id_]
                found.append(self.members[id_])
        return found

    def close(self) -> None:
        """Let go of what works in the background."""
        for each in (self._matcher, *self._narrow.values()):
            each.close()

    def _picks(self, batch: Batch) -> Mapping[tuple[Sink, int], list[Pick]]:
        """Who gets what, by where it goes and in which epoch, in the order of the events."""
        found: dict[tuple[Sink, int], list[Pick]] = {}
        for matcher in (self._matcher, *self._narrow.values()):
            if not len(matcher) or not len(batch):
                continue
            events, ids = matcher.match(batch.events).pairs()
            for event, id_ in zip(events.tolist(), ids.tolist(), strict=True):
                member = self.members[id_]
                found.setdefault((member.sink, member.epoch), []).append((event, member))
        for member in self._everything.values():
            place = member.sink, member.epoch
            found.setdefault(place, []).extend((event, member) for event in range(len(batch)))
        for place, picks in found.items():
            if len(place[0].subscribers) > 1:
                picks.sort(key=lambda pick: pick[0])
            if self._floors:
                found[place] = [
                    (event, member)
                    for event, member in picks
                    if not (member.floor and batch.is_below(event, member.floor))
                ]
            self.matched += len(found[place])
        return {place: picks for place, picks in found.items() if picks}
