"""Projection and relatedness, compared with dicts and the formulas as they are written."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.spaces import CITY, WORDS, Oracle, documents, make
from tidegate import Space
from tidegate.semantics import CosineEsa, PaperEsa, Relatedness, relatedness
from tidegate.semantics.builder import Document
from tidegate.semantics.projection import basis_of

terms = st.lists(st.sampled_from([*WORDS, "the", "xyzzy"]), min_size=1, max_size=3).map(" ".join)
themes = st.lists(terms, max_size=2)


@pytest.fixture(scope="module")
def city() -> Iterator[Space]:
    with tempfile.TemporaryDirectory() as folder:
        yield make(Path(folder, "space"), CITY)


@given(documents, themes)
def test_basis_is_the_documents_with_all_words_of_any_tag(corpus: list[Document], tags: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        basis = basis_of(make(Path(folder, "space"), corpus), tags)
    expected = Oracle.of(corpus).basis(tags)
    holding = set(range(len(corpus))) if basis.holds is None else set(basis.holds.nonzero()[0].tolist())
    assert (holding, basis.size) == (expected, len(expected))


@given(documents, terms, terms, themes, themes, st.integers(1, 4), st.sampled_from([0.0, 0.4, 1.0]))
def test_relatedness_agrees_with_the_formulas(
    corpus: list[Document], a: str, b: str, themes_a: list[str], themes_b: list[str], most: int, outside: float
) -> None:
    oracle = Oracle.of(corpus)
    with tempfile.TemporaryDirectory() as folder:
        space = make(Path(folder, "space"), corpus)
        paper, best = Relatedness(space, PaperEsa()), Relatedness(space, CosineEsa(most, outside))
        actual = [r(a, b, themes_a, themes_b) for r in (paper, best)]
        mirrored = [r(b, a, themes_b, themes_a) for r in (paper, best)]
        vectors = [r.vector(a, themes_a) for r in (paper, best)]
    by_paper = [oracle.vector(a, themes_a, None), oracle.vector(b, themes_b, None)]
    by_best = [oracle.vector(a, themes_a, most, outside), oracle.vector(b, themes_b, most, outside)]
    for vector, expected in zip(vectors, (by_paper[0], by_best[0]), strict=True):
        assert dict(zip(vector.documents.tolist(), vector.weights.tolist(), strict=True)) == pytest.approx(expected)
    figures = [1.0, 1.0] if a == b else [oracle.paper(*by_paper), oracle.best(*by_best)]
    assert actual == pytest.approx(figures, abs=1e-9)
    assert mirrored == pytest.approx(actual, abs=1e-12)
    assert all(0 <= item <= 1 for item in actual)


def test_theme_selects_the_sense_of_a_word(city: Space) -> None:
    related = Relatedness(city)
    assert related("power", "president", ["politics"], ["politics"]) > related("power", "president")
    assert related("power", "energy", ["station"], ["computer"]) < related(
        "power", "energy", ["computer"], ["computer"]
    )
    assert related("parking", "garage") > related("parking", "energy") == 0


# Cases in which the paper's formulas give a strange result, or none -------------------------------------


def test_term_in_every_document_of_its_theme_is_read_without_the_theme(city: Space) -> None:
    paper, best = Relatedness(city, PaperEsa()), Relatedness(city)
    assert len(paper.term_vector("energi", ["energy"])) == 0
    assert paper.vector("energy", ["energy"]).weights.tolist() == paper.vector("energy").weights.tolist()
    assert paper("energy", "power", ["energy"], ["power"]) == paper("energy", "power") > 0
    assert len(best.vector("energy", ["energy"])) == 3
    assert best("energy", "power", ["energy"], ["power"]) > 0.5


def test_term_in_every_document_is_independent_of_the_theme(tmp_path: Path) -> None:
    space = make(tmp_path / "space", [Document("a", "energy car"), Document("b", "energy bus")])
    assert len(Relatedness(space, PaperEsa()).vector("energy")) == 0
    assert len(Relatedness(space).vector("energy")) == 2
    assert basis_of(space, ["energy"]).holds is None
    assert basis_of(space, ["energy car"]).size == 1


def test_unknown_term_is_related_only_to_itself(city: Space) -> None:
    for related in (Relatedness(city), Relatedness(city, PaperEsa())):
        assert related("xyzzy", "laptop") == related("laptop", "xyzzy") == related("xyzzy", "plugh") == 0
        assert related("xyzzy", " XYZZY ") == 1
        assert related("", "laptop") == related("the", "laptop") == related("the", "of") == 0
        assert related("", " ") == 1


def test_unknown_words_and_stop_words_of_a_term_are_ignored(city: Space) -> None:
    related = Relatedness(city)
    assert related("the laptop xyzzy", "energy") == pytest.approx(related("laptop", "energy"))
    assert related("laptop", "laptop xyzzy") == pytest.approx(1)


def test_term_absent_from_its_theme_is_read_without_the_theme(city: Space) -> None:
    for related in (Relatedness(city), Relatedness(city, PaperEsa()), Relatedness(city, CosineEsa(outside=0))):
        assert related("laptop", "computer", ["garage"]) == pytest.approx(related("laptop", "computer"))
        assert related("laptop", "laptop", ["garage"]) == 1
    narrow = Relatedness(city, CosineEsa(outside=0))
    assert len(narrow.term_vector("laptop", ["garage"])) == 0
    assert len(narrow.vector("laptop", ["garage"])) == 2


def test_document_outside_the_theme_counts_less(city: Space) -> None:
    def share_of(document: str, outside: float) -> float:
        vector = Relatedness(city, CosineEsa(outside=outside)).vector("power", ["politics"])
        weights = dict(zip([city.titles[n] for n in vector.documents.tolist()], vector.weights, strict=True))
        return float(weights.get(document, 0) / vector.weights.sum())

    assert share_of("Laptop", 0) == 0
    assert 0 < share_of("Laptop", 0.4) < share_of("Laptop", 1)
    assert share_of("Politics", 0) == 1 > share_of("Politics", 0.4) > share_of("Politics", 1)


@pytest.mark.parametrize("tags", [[], ["xyzzy"], ["the"], [""], ["energy xyzzy"], ["car politics"]])
def test_theme_without_documents_is_ignored(city: Space, tags: list[str]) -> None:
    assert basis_of(city, tags).holds is None
    assert basis_of(city, tags).size == city.size
    assert basis_of(city, [*tags, "garage"]).size == 2


def test_tags_beyond_the_limits_are_ignored(city: Space) -> None:
    none = [f"tag {n:05}" for n in range(1_000)]
    assert basis_of(city, [*none[1:], "a car"]).size == basis_of(city, ["car"]).size < city.size
    assert basis_of(city, [*none[1:], "time"]).size == basis_of(city, ["time"]).size < city.size
    assert basis_of(city, [*none, "time"]).size == city.size
    beginning = "car " * 250
    assert basis_of(city, [beginning + "politics"]).size == basis_of(city, ["car"]).size


def test_disjoint_themes_have_relatedness_0_by_cosine(city: Space) -> None:
    assert Relatedness(city)("car", "power", ["garage"], ["politics"]) == 0
    assert 0 < Relatedness(city, PaperEsa())("parking", "president", ["street", "laptop"], ["station", "politics"]) < 1


def test_rare_terms_seem_related_by_distance_but_not_by_cosine(tmp_path: Path) -> None:
    texts = [("car " * (n < 500)) + ("street " * (250 <= n < 750)) + ("coal" * (n == 800)) for n in range(1_000)]
    texts[900] = "noise"
    corpus = [Document(str(n), text or "room") for n, text in enumerate(texts)]
    space = make(tmp_path / "space", corpus)
    paper, best = Relatedness(space, PaperEsa()), Relatedness(space, CosineEsa(1_000))
    assert paper("coal", "noise") > paper("car", "street")
    assert best("coal", "noise") == 0 < best("car", "street")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("5", "5.0", 1),
        ("5", "6", 0),
        ("-5", "5", 0),
        ("1e3", "1000", 1),
        (".5", "0.50", 1),
        ("9007199254740993", "9007199254740992", 0),
        ("room 112", "room 113", 0),
        ("room 112", "Room  112", 1),
        ("desk 112c", "desk 112d", 0),
        ("2 of 3", "3 of 4", 0),
        ("3.5 kW", "3.6 kW", 0),
    ],
)
def test_numbers_have_relatedness_1_or_0(city: Space, a: str, b: str, expected: float) -> None:
    assert Relatedness(city)(a, b) == expected


def test_number_on_one_side_only_decides_nothing(city: Space) -> None:
    assert Relatedness(city)("laptop 7", "laptop") == pytest.approx(1)
    assert Relatedness(city)("laptop 7", "computer 7") == pytest.approx(Relatedness(city)("laptop", "computer"))


def test_result_cache_is_bounded_and_changes_no_result(city: Space) -> None:
    short, long = Relatedness(city, remembered=1), Relatedness(city)
    for word in WORDS * 2:
        assert math.isclose(short(word, "power", [word]), long(word, "power", [word]))


TERMS = [*WORDS, "power station", "Room 112", "room 113", " 5", "5.0", "zzz", "the", "laptop battery power"]


def test_cached_weights_are_bounded(city: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relatedness, "_MAX_CACHED_WEIGHTS", 30)
    monkeypatch.setattr(relatedness, "_MAX_BASIS_BYTES", 3 * city.size)
    related = Relatedness(city)
    for n in range(40):
        text = " ".join(["energy", "power", "laptop", *["car"] * n])
        assert len(related.vector(text, [f"tag {n}"])) == len(Relatedness(city).vector(text))
        holding = sum(len(item) for cache in (related._vectors, related._terms) for item in cache.values())
        assert holding <= 2 * (30 + city.size)
        assert len(related._bases) <= 3


@pytest.mark.parametrize("measure", [CosineEsa(), CosineEsa(2), PaperEsa()])
def test_many_terms_at_once_are_as_related_as_one_by_one(city: Space, measure: CosineEsa | PaperEsa) -> None:
    theme, of = frozenset({"energy"}), frozenset({"politics", "car"})
    for left, right in ((TERMS, TERMS[::-1]), (TERMS[:1], TERMS), ([], TERMS), (TERMS, [])):
        actual = Relatedness(city, measure).relatedness(left, right, theme, of)
        alone = Relatedness(city, measure)
        assert actual.shape == (len(left), len(right))
        for row, one in zip(actual.tolist(), left, strict=True):
            assert row == pytest.approx([alone(one, other, theme, of) for other in right], abs=1e-7)
