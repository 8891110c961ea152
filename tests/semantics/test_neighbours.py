"""The nearest terms, compared with all terms."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.spaces import WORDS, documents, make
from tidegate.semantics import CosineEsa, Relatedness, neighbours
from tidegate.semantics.builder import Document
from tidegate.semantics.storage import Parameters


def test_document_of_rare_terms_has_no_neighbours(tmp_path: Path) -> None:
    corpus = [Document("a", "car street"), Document("b", "car street"), Document("c", "coal noise")]
    space = make(tmp_path / "space", corpus, Parameters(1, 2))
    assert space.lengths[2] == 0
    ((term, figure),) = neighbours.nearest(Relatedness(space), "car")
    assert (term, round(figure, 9)) == ("street", 1)
    assert neighbours.nearest(Relatedness(space), "coal") == neighbours.concepts(Relatedness(space), "coal") == []


@given(documents, st.sampled_from(WORDS), st.lists(st.sampled_from(WORDS), max_size=2), st.integers(1, 12))
def test_nearest_terms_are_the_most_related(corpus: list[Document], word: str, tags: list[str], chunk: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_CHUNK", chunk)
        space = make(Path(folder, "space"), corpus)
        related = Relatedness(space, CosineEsa())
        actual = neighbours.nearest(related, word, tags, 5)
        vector = related.vector(word, tags)
        others = [space.terms[n] for n in range(len(space.terms)) if space.terms[n] not in space.words(word)]
        vectors = [related.term_vector(term, tags) for term in others]
        every = [related.measure.compare(vector, other) for other in vectors if len(other) and len(vector)]
        concepts = neighbours.concepts(related, word, tags, 3)
        titles = {space.titles[int(n)] for n in vector.documents}
    assert [figure for _, figure in actual] == pytest.approx(sorted((x for x in every if x > 0), reverse=True)[:5])
    assert [weight for _, weight in concepts] == sorted(vector.weights.tolist(), reverse=True)[:3]
    assert {title for title, _ in concepts} <= titles
