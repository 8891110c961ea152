"""Companions, against the slow and obvious way to find them."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import combinations
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from examples.companions import ATTRIBUTES, companions
from tidegate.ingress.feeds.demo import Anpr
from tidegate.model import timestamps

Sighting = tuple[str, str, int]
"""Camera, vehicle, microseconds."""

INPUT = pa.schema(
    {
        "cid": pa.string(),
        "vid": pa.string(),
        "time": pa.timestamp("us", "UTC"),
        "_id": pa.string(),
        "_time": pa.timestamp("us", "UTC"),
    }
)


def batch(sightings: list[Sighting]) -> pa.RecordBatch:
    rows = [
        {"cid": cid, "vid": vid, "time": timestamps.to_datetime(at), "_id": f"s:{n}", "_time": None}
        for n, (cid, vid, at) in enumerate(sightings)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=INPUT)


def slow(sightings: list[Sighting], together: int, within_s: float) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Look at every two sightings."""
    met: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
    for (cid, vid, at), (cid2, vid2, at2) in combinations(sightings, 2):
        if cid == cid2 and vid != vid2 and abs(at - at2) <= within_s * 1e6:
            met.setdefault((min(vid, vid2), max(vid, vid2)), []).append((cid, min(at, at2), max(at, at2)))
    found = {}
    for pair, meetings in met.items():
        cameras = len({cid for cid, _, _ in meetings})
        if cameras >= together:
            found[pair] = cameras, min(first for _, first, _ in meetings), max(last for _, _, last in meetings)
    return found


def fast(batches: list[pa.RecordBatch], **options: Any) -> dict[tuple[str, str], tuple[int, int, int]]:
    found = {}
    for out in companions(iter(batches), **options):
        for row in out.to_pylist():
            first, last = timestamps.from_datetime(row["first"]), timestamps.from_datetime(row["last"])
            assert (row["a"], row["b"]) not in found
            found[row["a"], row["b"]] = row["cameras"], first, last
            assert row["_id"] == f"{row['a']}+{row['b']}@{timestamps.to_text(last)}#{row['cameras']}"
    return found


sightings_ = st.lists(
    st.tuples(
        st.sampled_from(["c1", "c2", "c3", "c4"]),
        st.sampled_from(["京K1", "B", "C", "AA", "D"]),
        st.integers(0, 40).map(lambda n: n * 500_000),
    ),
    max_size=40,
)


@given(sightings_, st.integers(1, 4), st.sampled_from([0, 0.5, 2, 60]), st.integers(0, 40))
def test_companions_agree_with_the_obvious_algorithm(
    sightings: list[Sighting], together: int, within_s: float, cut: int
) -> None:
    batches = [batch(sightings[:cut]), batch(sightings[cut:])]
    assert fast(batches, together=together, within_s=within_s) == slow(sightings, together, within_s)


def test_no_sightings_have_no_companions() -> None:
    assert list(companions(iter([]))) == []
    assert list(companions([batch([])])) == []


def test_result_has_the_declared_attributes() -> None:
    seen = batch([(f"c{n}", vid, n * 1_000_000) for n in range(3) for vid in "xy"])
    (out,) = companions([seen])
    assert out.schema.names == [*(field.name for field in ATTRIBUTES.root), "_id"]
    assert [out.schema.field(field.name).type for field in ATTRIBUTES.to_arrow()] == list(ATTRIBUTES.to_arrow().types)


def test_parties_of_the_demo_are_found() -> None:
    anpr, start = Anpr(vehicles=300), 1_767_225_600_000_000
    seen: list[Sighting] = []
    for second in range(600):
        at = start + second * 1_000_000
        seen += [(e["cid"], e["vid"], at) for e in map(json.loads, anpr.events(5, at).records)]
    found = fast([batch(seen)], together=5, within_s=10)
    plates = anpr.names["vid"]
    parties: dict[int, list[str]] = {}
    for vehicle, party in enumerate(anpr.party.tolist()):
        parties.setdefault(party, []).append(plates[vehicle])
    expected = {tuple(sorted(pair)) for party in parties.values() for pair in combinations(party, 2)}
    assert expected <= set(found)
    assert len(found) < 2 * len(expected), "few others happen to take the same way"
    assert timedelta(microseconds=max(last - first for _, first, last in found.values())) <= timedelta(minutes=10)
