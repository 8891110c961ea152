"""The slot table, compared with a dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.discovery.slot_table import SlotTable


class Colliding(str):
    """Names that hash to the same few table entries, some of them at its end."""

    __slots__ = ()

    def __hash__(self) -> int:
        return (2**17 - 2 + len(self)) % 2**17


names = st.builds(lambda letter, size: Colliding(letter * size), st.sampled_from("abcd"), st.integers(1, 4))


@given(st.lists(st.tuples(names, st.booleans()), max_size=60))
def test_slot_table_agrees_with_a_dict(steps: list[tuple[str, bool]]) -> None:
    slots, expected = SlotTable(), dict[str, int]()
    for name, take in steps:
        if take and name not in expected:
            expected[name] = slots.take(name)
        elif not take and name in expected:
            assert slots.release(name) == expected.pop(name)
        assert {item: slots.get(item) for item in expected} == expected
        assert (slots.get(name) is not None) is (name in expected)
    assert len(slots) == len(expected)
    assert set(slots) == set(expected)
    assert len(set(expected.values())) == len(expected)
    assert max(expected.values(), default=-1) < max(1, len(slots.names))
