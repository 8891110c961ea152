"""Matrices of relatedness, compared with single pairs; and properties of every semantics."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.spaces import CITY, WORDS, make
from tidegate import Space
from tidegate.errors import EnvironmentProblem, MatcherError, SpaceError
from tidegate.filters import meaning
from tidegate.semantics import (
    Alone,
    CosineEsa,
    Embedding,
    Esa,
    NamedSemantics,
    PaperEsa,
    Relatedness,
    both,
    bulk,
    default_semantics,
    embedding,
    embedding_only,
    esa_only,
    paper,
    relatedness,
    rules,
)
from tidegate.semantics.bulk import TermVector
from tidegate.semantics.competition import Best, Competition, Scale

RULED = ["5", "5.0", "room 112", "room 113", "5th", "five", "per", "second", "increased", "falling", "HIGH", "lower"]
words = st.sampled_from([*WORDS, *RULED, "the", "xyzzy", "Energy", ""])
texts = st.lists(words, min_size=1, max_size=3).map(" ".join)
lists = st.lists(texts, max_size=6)
themes = st.lists(st.sampled_from(WORDS), max_size=2)


@pytest.fixture(scope="module")
def city() -> Iterator[Space]:
    with tempfile.TemporaryDirectory() as folder:
        yield make(Path(folder, "space"), CITY)


@pytest.fixture(scope="module")
def installed() -> Embedding:
    return Embedding.open()


@pytest.fixture(scope="module", params=["letter", "paper", "esa", "embedding", "both"])
def semantics(request: pytest.FixtureRequest, city: Space, installed: Embedding) -> NamedSemantics:
    built: dict[str, NamedSemantics] = {
        "letter": paper(city, rules=False),
        "paper": paper(city),
        "esa": esa_only(city),
        "embedding": embedding_only(installed),
        "both": both(city, installed),
    }
    return built[request.param]


@given(lists, lists)
def test_rules_over_a_matrix_agree_with_each_pair(subscribed: list[str], terms: list[str]) -> None:
    actual = rules.all_settled(subscribed, terms)
    expected = [[rules.settled(a, b) for b in terms] for a in subscribed]
    assert actual.shape == (len(subscribed), len(terms))
    assert [[None if np.isnan(item) else item for item in row] for row in actual.tolist()] == expected
    opposed = rules.all_opposed(subscribed, terms)
    assert opposed.shape == actual.shape
    assert opposed.tolist() == [[rules.opposed(a, b) for b in terms] for a in subscribed]


@given(lists, lists, themes, themes)
def test_esa_matrix_agrees_with_each_pair(
    city: Space, subscribed: list[str], terms: list[str], of_filters: list[str], of_events: list[str]
) -> None:
    for measure in (PaperEsa(), CosineEsa(2)):
        one = Relatedness(city, measure)
        many = Alone(Esa(city, measure), 0.5).relatedness(subscribed, terms, of_filters, of_events)
        expected = [[one(a, b, of_filters, of_events) for b in terms] for a in subscribed]
        # The expanded square loses half of the digits if vectors are equal.
        assert many.reshape(-1) == pytest.approx(np.array(expected).reshape(-1), abs=1e-6)


def test_subscribed_terms_are_indexed_once_and_cache_is_bounded(city: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    turned: list[int] = []
    turn = bulk.Lines.of

    def noted(vectors: Sequence[TermVector], documents: int) -> bulk.Lines:
        turned.append(len(vectors))
        return turn(vectors, documents)

    monkeypatch.setattr(bulk.Lines, "of", noted)
    monkeypatch.setattr(relatedness, "_MAX_CACHED_LISTS", 4)
    esa = Esa(city)
    questions = [(["energy", "laptop"], [tag]) for tag in WORDS[:6]]
    first = [esa.figures(wanted, WORDS, tags, []) for wanted, tags in questions]
    assert len(turned) == len(questions)
    assert len(esa.related._subscribed) <= 4
    esa.figures(*questions[-1][:1], WORDS, questions[-1][1], ["car"])
    assert len(turned) == len(questions)
    again = [esa.figures(wanted, WORDS, tags, []) for wanted, tags in questions]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(("cells", "terms", "words"), [(1, 3, 2**22), (10, 256, 1), (2**20, 256, 30)])
def test_many_terms_and_long_ones_are_compared_in_parts(
    city: Space, monkeypatch: pytest.MonkeyPatch, cells: int, terms: int, words: int
) -> None:
    texts = [*WORDS, " ".join(WORDS), "", "power station " * 20, "xyzzy"]
    whole = Esa(city).figures(texts, texts, (), ())
    monkeypatch.setattr(bulk, "_MAX_SHARED_AT_ONCE", 2)
    monkeypatch.setattr(bulk, "_MAX_CELLS", cells)
    monkeypatch.setattr(relatedness, "_MAX_TERMS_AT_ONCE", terms)
    monkeypatch.setattr(relatedness, "_MAX_PRODUCTS", words)
    for few in (texts[:2], texts):
        actual = Esa(city).figures(few, texts, (), ())
        assert actual == pytest.approx(whole[: len(few)], nan_ok=True)


def test_pickled_semantics_has_empty_caches(city: Space) -> None:
    semantics = esa_only(city)
    expected = semantics.relatedness(WORDS, WORDS)
    again = pickle.loads(pickle.dumps(semantics))
    assert again.documents is not None
    assert not len(again.documents._vectors)
    assert not again.documents._subscribed
    assert np.array_equal(again.relatedness(WORDS, WORDS), expected)


@given(subscribed=lists, terms=lists)
def test_relatedness_is_0_to_1_and_1_for_equal_texts(
    semantics: NamedSemantics, subscribed: list[str], terms: list[str]
) -> None:
    actual = semantics.relatedness(subscribed, terms, frozenset(), frozenset())
    assert actual.shape == (len(subscribed), len(terms))
    assert np.isfinite(actual).all()
    assert ((0 <= actual) & (actual <= 1)).all()
    if semantics.name.endswith("letter"):
        return
    for a, row in zip(subscribed, actual.tolist(), strict=True):
        for b, figure in zip(terms, row, strict=True):
            known = rules.settled(a, b)
            assert known is None or figure == known
            assert known is not None or semantics.name == "esa-paper" or not rules.opposed(a, b) or figure == 0


def test_empty_text_has_relatedness_0(semantics: NamedSemantics) -> None:
    assert semantics.relatedness([""], ["energy"], frozenset(), frozenset()) == 0
    assert 0 <= semantics.threshold <= 1


def test_letter_mode_has_equal_texts_below_1_in_two_themes(city: Space) -> None:
    def figure(given: NamedSemantics) -> float:
        return float(given.relatedness(["laptop"], ["laptop"], frozenset({"power"}), frozenset({"energy"}))[0, 0])

    assert figure(paper(city, rules=False)) < 1
    assert figure(paper(city)) == 1


def test_space_opens_in_the_requested_mode(city: Space) -> None:
    wanted, met, tags = ["energy", "laptop"], ["power", "energy", "xyzzy"], (frozenset({"laptop"}), frozenset({"car"}))
    built: dict[str, NamedSemantics] = {"letter": paper(city, rules=False), "paper": paper(city), "esa": esa_only(city)}
    for mode, expected in built.items():
        space = Space.open(city.folder, mode=mode)
        several: list[meaning.Semantics] = [space, default_semantics(space), pickle.loads(pickle.dumps(space))]
        for item in several:
            assert (item.threshold, item.rivalry) == (expected.threshold, expected.rivalry)
            assert np.array_equal(item.relatedness(wanted, met, *tags), expected.relatedness(wanted, met, *tags))
    assert city.mode == "best"
    assert city.semantics.name == default_semantics(city).name
    assert "mode 'paper'" in repr(Space.open(city.folder, mode="paper"))


def test_unknown_mode_is_refused(city: Space) -> None:
    with pytest.raises(MatcherError, match=r"unknown mode 'papers'; did you mean 'paper'\?"):
        Space.open(city.folder, mode="papers")
    with pytest.raises(MatcherError, match="unknown mode 'zzz'; expected one of best, esa, paper, letter"):
        Space.open(city.folder, mode="zzz")


def test_embedding_decides_for_a_word_unknown_to_the_space(city: Space, installed: Embedding) -> None:
    pair: tuple[Sequence[str], Sequence[str]] = (["electricity"], ["voltage"])
    assert esa_only(city).relatedness(*pair) == 0
    assert both(city, installed).relatedness(*pair) > 0.1


def test_any_text_is_accepted(city: Space, installed: Embedding) -> None:
    odd = ["", " ", "\x00", "\ud800", "😀", "שלום", "ß", "SS", "word " * 20_000, "\u0665", "1e400"]
    actual = both(city, installed).relatedness(odd, odd, ["", "\ud800"], ["😀"])
    assert ((actual >= 0) & (actual <= 1)).all()
    assert actual.diagonal().tolist() == [1] * len(odd)
    assert actual[odd.index("ß"), odd.index("SS")] == 1


def test_long_text_is_compared_by_its_beginning_but_equal_as_a_whole(city: Space, installed: Embedding) -> None:
    long = "laptop " * 1_000
    for semantics in (esa_only(city), embedding_only(installed)):
        actual = semantics.relatedness(["computer", long + "garage"], [long, long + "garage"])
        assert actual[0, 0] == actual[0, 1] > 0
        assert actual[1].tolist() == [pytest.approx(1, abs=2e-2), 1]


class Table:
    """A source with a table of relatedness."""

    name = "table"

    def __init__(self, figures: dict[tuple[str, str], float]) -> None:
        self._figures = figures

    def figures(self, subscribed: Sequence[str], terms: Sequence[str], *_: object) -> np.ndarray:
        return np.array([[self._figures.get((a, b), np.nan) for b in terms] for a in subscribed])


COMPETITION = Competition(rivalry=1.0, threshold=0.5)
SCALE = Scale(centre=0.2, unit=0.1)


def test_single_term_has_its_own_belief() -> None:
    best = Best([(Table({("ireland", "eire"): 0.1, ("spain", "eire"): 0.2}), SCALE)], COMPETITION)
    assert best.relatedness(["ireland"], ["eire"])[0, 0] == pytest.approx(0.5)
    assert best.relatedness(["spain"], ["eire"])[0, 0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_evidence_falls_with_the_number_of_words() -> None:
    texts = [
        "noise",
        "noise level",
        "increased noise level",
        "an increased level of noise events",
        "one two three four five",
    ]
    best = Best([(Table({(a, b): 0.2 for a in texts for b in texts}), SCALE)], COMPETITION)
    actual = best.evidence(texts, texts)
    assert actual.diagonal().tolist() == pytest.approx([1, 0, -1, -2, -2])
    assert actual[0].tolist() == actual[:, 0].tolist() == pytest.approx([1] * 5)  # the shorter one counts


def test_other_terms_do_not_change_a_result() -> None:
    best = Best([(Table({("ireland", "eire"): 0.6, ("spain", "eire"): 0.3}), SCALE)], COMPETITION)
    alone = [best.relatedness([term], ["eire"])[0, 0] for term in ("ireland", "spain", "france")]
    assert best.relatedness(["ireland", "spain", "france"], ["eire"])[:, 0].tolist() == alone
    assert alone[2] == 0


def test_evidence_is_the_mean_of_the_sources_that_know_both_terms() -> None:
    one, two = Table({("p 1", "x y"): 0.3, ("b 1", "x y"): 0.3}), Table({("p 1", "x y"): 0.4})
    best = Best([(one, SCALE), (two, SCALE)], COMPETITION)
    assert best.evidence(["p 1", "b 1", "c 1"], ["x y"])[:, 0].tolist() == pytest.approx([1.5, 1.0, -np.inf])


def test_scale_applies_its_power_and_keeps_nan() -> None:
    scale = Scale(centre=0.5, unit=0.1, power=0.5)
    assert scale.evidence(np.array([0.25, 0.36, 0.0, -0.1])).tolist() == pytest.approx([0, 1, -5, -5])
    assert np.isnan(scale.evidence(np.array([np.nan]))).all()


def test_embedding_relates_synonyms(installed: Embedding) -> None:
    electricity, motor = installed.figures(["energy consumption"], ["electricity usage", "motor car"])[0]
    assert electricity > 0.4 > motor
    assert np.isnan(installed.figures([""], ["energy"])[0, 0])
    assert installed.figures(["  Energy "], ["energy"])[0, 0] == pytest.approx(1, abs=1e-6)


def test_full_vector_cache_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Embedding.open().figures(["car", "bus"], ["train"])
    monkeypatch.setattr(embedding, "_MAX_CACHED_VECTORS", 1)
    small = Embedding.open()
    for _ in range(2):
        assert np.array_equal(small.figures(["car", "bus"], ["train"]), expected)
    assert len(small._vectors) == 1


def test_default_semantics_uses_everything_available(city: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_semantics(city).name == "best-esa-best+embedding"
    assert default_semantics(city.folder).name == "best-esa-best+embedding"
    assert default_semantics().name == "best-embedding"
    monkeypatch.setattr(embedding, "find_spec", lambda _: None)
    assert default_semantics(str(city.folder)).name == "best-esa-best"
    with pytest.raises(EnvironmentProblem, match=r"pip install 'tidegate\[embedding\]'.*tidegate semantics build"):
        default_semantics()
    with pytest.raises(EnvironmentProblem, match=r"no embedding is installed: pip install 'tidegate\[embedding\]'"):
        Embedding.open()


def test_folder_that_is_no_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="is no semantic space"):
        default_semantics(tmp_path)


def test_damaged_embedding_names_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("no")
    monkeypatch.setattr(embedding, "_folder", lambda: tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"the embedding in .* can't be read"):
        Embedding.open()
