"""Explanations of terms and mappings, and shared semantics."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.spaces import CITY, WORDS, make
from tidegate import Filter, Matcher, Space
from tidegate.discovery.names import MAX_SIMILAR_NAMES, by_meaning
from tidegate.errors import DiscoveryError
from tidegate.filters.meaning import Meaning
from tidegate.filters.vectors import NumpyArray
from tidegate.semantics import Relatedness, esa_only, paper
from tidegate.semantics.looking import documents_of, look, meant, related
from tidegate.semantics.neighbours import shared
from tidegate.semantics.shared import LONE_THRESHOLD, Shared

NOTHING: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    return make(tmp_path_factory.mktemp("city") / "space", CITY)


@given(st.sampled_from(WORDS), st.sampled_from(WORDS), st.sampled_from([(), ("energy",), ("garage", "politics")]))
def test_shared_concepts_are_shares_of_the_inner_product(space: Space, a: str, b: str, themes: tuple[str, ...]) -> None:
    by = Relatedness(space)
    left, right = by.vector(a, themes), by.vector(b)
    one = dict(zip(left.documents.tolist(), left.weights.tolist(), strict=True))
    other = dict(zip(right.documents.tolist(), right.weights.tolist(), strict=True))
    products = {space.titles[document]: one[document] * other[document] for document in one.keys() & other.keys()}
    total = sum(products.values())
    actual = shared(by, a, b, themes)
    assert dict(actual) == pytest.approx({title: product / total for title, product in products.items()})
    assert [share for _, share in actual] == sorted((share for _, share in actual), reverse=True)


def test_semantics_with_documents_shows_them(space: Space) -> None:
    for item in (space, Relatedness(space), esa_only(space), paper(space), Shared(esa_only(space))):
        by = documents_of(item)
        assert by is not None
        assert by.space is space
        assert related(item, "laptop", "computer")["concepts"]
    assert documents_of(None) is None


class Lengths:
    """Semantics without documents: words of equal length are related. Fails if two threads call it at once."""

    threshold = 0.3
    rivalry = 1.0

    def __init__(self) -> None:
        self.inside = 0

    def relatedness(
        self,
        subscribed: Sequence[str],
        terms: Sequence[str],
        theme: frozenset[str],  # noqa: ARG002 - of the protocol
        of: frozenset[str],  # noqa: ARG002 - of the protocol
    ) -> NumpyArray:
        self.inside += 1
        assert self.inside == 1
        actual = [[float(len(one) == len(other)) for other in terms] for one in subscribed]
        self.inside -= 1
        return np.array(actual).reshape(len(subscribed), len(terms))


def test_semantics_without_documents_shows_none() -> None:
    actual = look(Lengths(), "energy", to_themes=["x"], others=["garage", "car"])
    assert [item["relatedness"] for item in actual["related"]] == [1, 0]
    assert (actual["concepts"], actual["nearest"], actual["words"], actual["documents"]) == ([], [], [], 0)


def test_shared_semantics_is_called_by_one_thread_at_a_time() -> None:
    inner = Lengths()
    semantics = Shared(inner)
    assert (semantics.rivalry, semantics.threshold) == (0, LONE_THRESHOLD)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(200):
                assert semantics.relatedness(["a", "bb"], ["c", "dd"], NOTHING, NOTHING).tolist() == [[1, 0], [0, 1]]
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert semantics.relatedness([], ["a"], NOTHING, NOTHING).shape == (0, 1)


def test_shared_semantics_ignores_rivals(space: Space) -> None:
    event = {"device": "laptop"}
    filters = {"one": "device~ = 'computer'~ THRESHOLD 0", "other": "device~ = 'laptop'~"}
    for semantics, same in ((Shared(esa_only(space)), True), (esa_only(space), False)):
        matcher = Matcher(semantics=semantics)
        matcher.add("one", filters["one"])
        alone = matcher.match([event]).degrees()[0]
        matcher.add("other", filters["other"])
        assert bool(matcher.match([event]).degrees()[0] == alone) is same


def test_mapping_lists_each_predicate_with_its_attribute(space: Space) -> None:
    filter_ = Filter("device~ = 'computer'~ AND level = 3", semantics=Meaning.of(Shared(esa_only(space))))
    (best, *_) = meant(filter_, {"device": "laptop", "level": 3})
    (pair,) = best["pairs"]
    assert (pair["predicate"], pair["attribute"], pair["value"]) == ("device~ = 'computer'~", "device", "laptop")
    assert pair["by_name"]["relatedness"] == 1
    assert [item["concept"] for item in pair["by_value"]["concepts"]] == ["Computer", "Laptop"]
    assert meant(filter_, {"level": 4, "device": "laptop"}) == []
    assert meant(Filter("a = 1"), {"a": 1}) == []


def test_names_are_found_by_meaning(space: Space) -> None:
    known = ["laptopName", "garage", "name", *(f"parking_{n}" for n in range(40))]
    alike = by_meaning(Shared(esa_only(space)))
    assert dict(alike("laptop_name", known)).keys() == {"laptop_name", "laptopName"}
    actual = alike("parking lot", known)
    assert len(actual) == MAX_SIMILAR_NAMES
    assert actual["parking lot"] == 1
    assert min(actual.values()) >= LONE_THRESHOLD
    with pytest.raises(DiscoveryError, match=r"names can't be compared by meaning here: install an embedding"):
        by_meaning(None)("a", known)
