"""Acknowledged cursors are stored in batches, in order, and never move back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delivery.test_hub import run, until
from tidegate.delivery.acks import Acknowledgements, onward
from tidegate.delivery.batch import reaches
from tidegate.errors import RegistryError
from tidegate.logs import Cursor

offsets = st.dictionaries(st.sampled_from("abc"), st.integers(0, 5))
marks = st.fixed_dictionaries(
    {}, optional={"x": st.integers(0, 5), "y": st.tuples(st.integers(0, 5), st.integers(0, 2))}
)
cursors = st.builds(Cursor, st.just("g"), offsets, marks)


class Store:
    def __init__(self) -> None:
        self.writes: list[dict[str, str]] = []
        self.fails = 0

    def __call__(self, cursors: Mapping[str, str]) -> None:
        if self.fails:
            self.fails -= 1
            raise RegistryError("the disk is full")
        self.writes.append(dict(cursors))


def test_many_cursors_are_stored_in_one_write_with_the_newest_of_each() -> None:
    async def work() -> None:
        store = Store()
        acks = Acknowledgements(store, 0.01)
        for n in range(100):
            acks.note("a", f"a{n}")
            acks.note("b", f"b{n}")
        assert acks.newest("a") == "a99"
        await acks.stored()
        assert store.writes == [{"a": "a99", "b": "b99"}]
        assert acks.newest("a") is None
        await acks.stored()  # nothing waits: it returns at once

    run(work())


def test_failed_write_raises_and_is_retried_with_the_newest_cursors() -> None:
    async def work() -> None:
        store = Store()
        store.fails = 1
        acks = Acknowledgements(store, 0.001)
        acks.note("a", "a1")
        acks.note("b", "b1")
        with pytest.raises(RegistryError, match="the disk is full"):
            await acks.stored()
        acks.note("a", "a2")
        await until(lambda: bool(store.writes), "the second try")
        assert store.writes == [{"a": "a2", "b": "b1"}]

    run(work())


def test_close_stores_all_cursors_except_forgotten_ones() -> None:
    async def work() -> None:
        store = Store()
        acks = Acknowledgements(store, 1_000.0)
        acks.note("a", "a1")
        acks.note("b", "b1")
        acks.forget("a")
        await acks.close()
        assert store.writes == [{"b": "b1"}]

    run(work())


def test_cancelled_flush_still_writes() -> None:
    async def work() -> None:
        store = Store()
        acks = Acknowledgements(store, 1_000.0)
        acks.note("a", "a1")
        waiting = asyncio.create_task(acks.flush())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await until(lambda: store.writes == [{"a": "a1"}], "the write")
        await acks.close()

    run(work())


@given(cursors, cursors)
def test_onward_is_before_neither_cursor_in_any_partition(a: Cursor, b: Cursor) -> None:
    found = onward(a, b)
    assert reaches(found, a)
    assert reaches(found, b)
    assert onward(found, a) == onward(found, b) == found
    assert found == onward(b, a)


def test_onward_ignores_cursor_of_another_generation() -> None:
    old, new = Cursor("g", {"a": 9}), Cursor("h", {"a": 1})
    assert onward(new, old) == new
    assert onward(new, None) == new
