"""Records that were written again are recognised as repeats."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tidegate.logs.cursor import Mark
from tidegate.logs.marks import is_repeat, source_of


def record_from(source: str, position: int, child: int | None = None) -> bytes:
    at = f"{position}" if child is None else f"{position}.{child}"
    return json.dumps({"n": position, "_src": f"{source}:{at}"}, separators=(",", ":")).encode()


@given(st.integers(0, 2**32).map(Random))
def test_repeats_of_any_source_are_skipped(rng: Random) -> None:
    children = rng.random() < 0.5
    expected = {
        source: [record_from(source, n, k) for n in range(20) for k in ((0, 1, 2) if children else (None,))]
        for source in ("gps_a/0", "gps_a/1", "b:c/0")
    }
    at = dict.fromkeys(expected, 0)
    written: list[bytes] = []
    while left := [source for source, done in at.items() if done < len(expected[source])]:
        source = rng.choice(left)
        if rng.random() < 0.1:
            at[source] = rng.randint(0, at[source])  # a failure: the source is read again from an earlier offset
        written.append(expected[source][at[source]])
        at[source] += 1
    marks: dict[str, Mark] = {}
    unique = [record for record in written if not is_repeat(record, marks)]
    for source, records in expected.items():
        assert [record for record in unique if source_of(record)[0] == source] == records  # type: ignore[index]


VALUES = st.recursive(
    st.text(max_size=10) | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["_src", "x"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5), st.none() | st.integers(0, 99))
def test_source_of_an_inner_object_is_ignored(record: dict[str, object], position: int | None) -> None:
    record.pop("_src", None)
    if position is not None:
        record["_src"] = f"gps/0:{position}"
    for separators in ((",", ":"), (", ", " : ")):
        text = json.dumps(record, separators=separators, ensure_ascii=False).encode(errors="surrogatepass")
        assert source_of(text) == (None if position is None else ("gps/0", position))


def test_source_without_an_offset_is_ignored() -> None:
    for text in ("", "gps", "gps/0:", "gps/0:x", "gps/0:-1", "gps/0:1.", "gps/0:1.x", ":1", "gps/0:" + "9" * 30):
        assert source_of(json.dumps({"_src": text}).encode()) is None
    for record in (b'{"_src":7}', b'{"_src":null}', b'{"_src":{"_src":"gps/0:1"}}', b'{"_src":"gps/0:1"'):
        assert source_of(record) in (None, ("gps/0", 1))
    assert source_of(b'{"x":"\\"_src\\":\\"gps/0:1\\""}') is None
