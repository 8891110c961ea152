"""What is shown of terms and of mappings, and what many share."""

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
def test_shared_concepts_are_the_products_of_both_vectors(
    space: Space, a: str, b: str, themes: tuple[str, ...]
) -> None:
    by = Relatedness(space)
    left, right = by.vector(a, themes), by.vector(b)
    one = dict(zip(left.documents.tolist(), left.weights.tolist(), strict=True))
    other = dict(zip(right.documents.tolist(), right.weights.tolist(), strict=True))
    products = {space.titles[document]: one[document] * other[document] for document in one.keys() & other.keys()}
    total = sum(products.values())
    found = shared(by, a, b, themes)
    assert dict(found) == pytest.approx({title: product / total for title, product in products.items()})
    assert [share for _, share in found] == sorted((share for _, share in found), reverse=True)


def test_whatever_knows_documents_shows_them(space: Space) -> None:
    for each in (space, Relatedness(space), esa_only(space), paper(space), Shared(esa_only(space))):
        by = documents_of(each)
        assert by is not None
        assert by.space is space
        assert related(each, "laptop", "computer")["concepts"]
    assert documents_of(None) is None


class Lengths:
    """Knows no documents: words of one length are related; and it must not be asked by two at once."""

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
        found = [[float(len(one) == len(other)) for other in terms] for one in subscribed]
        self.inside -= 1
        return np.array(found).reshape(len(subscribed), len(terms))


def test_what_knows_no_documents_shows_none() -> None:
    said = look(Lengths(), "energy", to_themes=["x"], others=["garage", "car"])
    assert [each["relatedness"] for each in said["related"]] == [1, 0]
    assert (said["concepts"], said["nearest"], said["words"], said["documents"]) == ([], [], [], 0)


def test_what_is_shared_is_asked_by_one_thread_at_a_time() -> None:
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
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed
    assert semantics.relatedness([], ["a"], NOTHING, NOTHING).shape == (0, 1)


def test_rivals_change_nothing_where_semantics_are_shared(space: Space) -> None:
    event = {"device": "laptop"}
    filters = {"one": "device~ = 'computer'~ THRESHOLD 0", "other": "device~ = 'laptop'~"}
    for semantics, same in ((Shared(esa_only(space)), True), (esa_only(space), False)):
        matcher = Matcher(semantics=semantics)
        matcher.add("one", filters["one"])
        alone = matcher.match([event]).degrees()[0]
        matcher.add("other", filters["other"])
        assert bool(matcher.match([event]).degrees()[0] == alone) is same


def test_a_mapping_says_what_is_taken_to_mean_what(space: Space) -> None:
    filter_ = Filter("device~ = 'computer'~ AND level = 3", semantics=Meaning.of(Shared(esa_only(space))))
    (best, *_) = meant(filter_, {"device": "laptop", "level": 3})
    (pair,) = best["pairs"]
    assert (pair["predicate"], pair["attribute"], pair["value"]) == ("device~ = 'computer'~", "device", "laptop")
    assert pair["by_name"]["relatedness"] == 1
    assert [each["concept"] for each in pair["by_value"]["concepts"]] == ["Computer", "Laptop"]
    assert meant(filter_, {"level": 4, "device": "laptop"}) == []
    assert meant(Filter("a = 1"), {"a": 1}) == []


def test_names_are_found_by_meaning(space: Space) -> None:
    known = ["laptopName", "garage", "name", *(f"parking_{n}" for n in range(40))]
    alike = by_meaning(Shared(esa_only(space)))
    assert dict(alike("laptop_name", known)).keys() == {"laptop_name", "laptopName"}
    found = alike("parking lot", known)
    assert len(found) == MAX_SIMILAR_NAMES
    assert found["parking lot"] == 1
    assert min(found.values()) >= LONE_THRESHOLD
    with pytest.raises(DiscoveryError, match=r"names can't be compared by meaning here: install an embedding"):
        by_meaning(None)("a", known)
