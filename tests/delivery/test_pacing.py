"""A sink that takes no more than its pace allows: whatever that is, all goes out once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.delivery.pacing import Pacing, paced
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber


class Held(Sink):
    """Takes some and no more, until it is told that it may."""

    kind = "held"

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.taken = most, list[int]()

    def render(self, batch: Any, picks: Sequence[Pick]) -> list[int]:  # noqa: ARG002 - the events' numbers do
        return [n for n, _ in picks]

    def write(self, rendered: Any) -> bool:
        self.first_unsent = None
        if len(self.taken) + len(rendered) > self.most:
            self.first_unsent = rendered[0]
            return False
        self.taken += rendered
        return len(self.taken) < self.most

    async def drain(self) -> None:
        self.most += 1

    def send_notice(self, subscriber: Subscriber, notice: Notice) -> None:
        raise NotImplementedError


class Allowance:
    """So many now, and one more each time that somebody asks how long to wait."""

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
def test_what_is_not_taken_is_read_again_and_comes_once_in_order(events: int, allowed: int, most: int) -> None:
    asyncio.run(_all(events, Held(most), Allowance(allowed)))


async def _all(events: int, inner: Held, allowance: Allowance) -> None:
    sink, place = Pacing(inner, allowance), 0
    while place < events:
        picks: Any = [(n, None) for n in range(place, events)]
        if sink.write(sink.render(None, picks)):  # type: ignore[arg-type]
            assert sink.first_unsent is None
        place = events if sink.first_unsent is None else sink.first_unsent
        assert inner.taken == list(range(place))
        await sink.drain()
    assert inner.taken == list(range(events))


def test_a_sink_whose_reader_may_have_everything_is_left_as_it_is() -> None:
    inner = Held(1)
    assert paced(inner, None) is inner
    assert (Pacing(inner, Allowance(1)).final, Pacing(inner, Allowance(1)).kind) == (inner, "held")
