"""A paced sink takes no more events than its pace allows, and sends each event once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.delivery.pacing import Pacing, paced
from tidegate.delivery.subscriber import DeliveryNotice, Pick, Sink, Subscriber


class LimitedSink(Sink):
    """Takes `max_events` events; each `drain` allows one more."""

    kind = "held"

    def __init__(self, max_events: int) -> None:
        super().__init__()
        self.max_events, self.taken = max_events, list[int]()

    def render(self, batch: Any, picks: Sequence[Pick]) -> list[int]:  # noqa: ARG002 - the indexes are enough
        return [n for n, _ in picks]

    def write(self, rendered: Any) -> bool:
        self.first_unsent = None
        if len(self.taken) + len(rendered) > self.max_events:
            self.first_unsent = rendered[0]
            return False
        self.taken += rendered
        return len(self.taken) < self.max_events

    async def drain(self) -> None:
        self.max_events += 1

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:
        raise NotImplementedError


class Allowance:
    """Allows some events now, and one more after each call of `wait_s`."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> bool:
        self.left -= self.left > 0
        return self.left > 0

    def give_back(self) -> None:
        self.left += 1

    def wait_s(self) -> float:
        self.left += 1
        return 0.0 if self.left > 1 else 1e-9


@given(st.integers(0, 30), st.integers(1, 10), st.integers(1, 10))
def test_events_beyond_the_pace_are_sent_later_once_and_in_order(events: int, allowed: int, max_events: int) -> None:
    asyncio.run(_all(events, LimitedSink(max_events), Allowance(allowed)))


async def _all(events: int, inner: LimitedSink, allowance: Allowance) -> None:
    sink, position = Pacing(inner, allowance), 0
    while position < events:
        picks: Any = [(n, None) for n in range(position, events)]
        if sink.write(sink.render(None, picks)):  # type: ignore[arg-type]
            assert sink.first_unsent is None
        position = events if sink.first_unsent is None else sink.first_unsent
        assert inner.taken == list(range(position))
        await sink.drain()
    assert inner.taken == list(range(events))


def test_sink_without_a_pace_is_not_wrapped() -> None:
    inner = LimitedSink(1)
    assert paced(inner, None) is inner
    assert (Pacing(inner, Allowance(1)).final, Pacing(inner, Allowance(1)).kind) == (inner, "held")
