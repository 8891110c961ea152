"""Random services and requests with few names, so that they overlap."""

from __future__ import annotations

from hypothesis import strategies as st

from tidegate.discovery.attributes import FAMILIES, ServiceAttribute, WantedAttribute
from tidegate.filters import sets

names = st.sampled_from(["speed", "sped", "vid", "pos.x", "größe", "temperature", "temperatur", "a", "b"])
families = st.sampled_from(FAMILIES[:3])
numbers = st.integers(-3, 3) | st.sampled_from([0.5, -1.5])
ranges = st.one_of(
    st.just(sets.ALL),
    st.builds(lambda a, b: sets.between(min(a, b), max(a, b)), numbers, numbers),
    st.builds(sets.related, st.sampled_from(["<", ">", "<=", ">=", "<>"]), numbers),
    st.lists(st.sampled_from(["CAR", "BUS"]), min_size=1).map(sets.points),
)
attributes = st.builds(ServiceAttribute, names, families, ranges | st.none())
wanted = st.builds(WantedAttribute, names, st.none() | families, st.none() | ranges.filter(lambda r: r != sets.ALL))
services = st.lists(attributes, max_size=6, unique_by=lambda each: each.key)
requests = st.lists(wanted, min_size=1, max_size=5)
