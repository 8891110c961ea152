"""Small corpora, and the slow, obvious oracle: dicts and the literal formulas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from tidegate.semantics import Best, CosineEsa, Esa, Space
from tidegate.semantics.builder import Document, build
from tidegate.semantics.default import COMPETITION, ESA_SCALE
from tidegate.semantics.storage import Parameters
from tidegate.semantics.words import Analyser

EVERYTHING = Parameters(least_words=1, least_documents=1)

CITY = [
    Document("Laptop", "A laptop is a portable computer. A laptop needs energy: its battery gives power."),
    Document("Computer", "A computer computes. The computer and the laptop use energy and power."),
    Document("Power station", "Power is energy over time. A power station makes energy from coal."),
    Document("Politics", "Power in politics is influence. A president has power over a parliament."),
    Document("Garage", "A garage is a parking space for a car. Parking a car in a garage is safe."),
    Document("Parking", "Parking is leaving a car in a parking lot, on a street or in a garage."),
]

WORDS = ["energy", "power", "laptop", "garage", "parking", "car", "street", "noise", "bus", "room"]
documents = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join), min_size=1, max_size=8
).map(lambda texts: [Document(f"d{number}", text) for number, text in enumerate(texts)])


def make(
    folder: Path, corpus: Iterable[Document], parameters: Parameters = EVERYTHING, in_memory: int = 1_000_000
) -> Space:
    build(corpus, folder, name="test", parameters=parameters, postings_in_memory=in_memory)
    return Space.open(folder, verify=True)


def narrow(space: Space) -> Best:
    """As `esa_only`, but documents outside the theme do not count: in six documents everything is related."""
    return Best([(Esa(space, CosineEsa(outside=0.0)), ESA_SCALE)], COMPETITION)


@dataclass
class Oracle:
    """The documents as lists of terms."""

    texts: list[list[str]]

    @classmethod
    def of(cls, corpus: Sequence[Document]) -> Oracle:
        analyser = Analyser()
        return cls([analyser.terms(document.text) for document in corpus])

    def basis(self, themes: Iterable[str]) -> set[int]:
        every = set(range(len(self.texts)))
        actual = set()
        for tag in themes:
            words = Analyser().terms(tag)
            actual |= {d for d in every if words and all(word in self.texts[d] for word in words)}
        return actual or every

    def paper_word(self, word: str, basis: set[int]) -> dict[int, float]:
        having = [d for d in basis if word in self.texts[d]]
        out = {}
        for d in having:
            text = self.texts[d]
            tf = 0.5 + 0.5 * text.count(word) / max(map(text.count, text))
            out[d] = tf * math.log(len(basis) / len(having))
        return {d: weight for d, weight in out.items() if weight != 0}

    def best_word(self, word: str, basis: set[int], most: int, outside: float) -> dict[int, float]:
        every = set(range(len(self.texts)))
        having = [d for d in every if word in self.texts[d]]
        if not having:
            return {}
        out = {}
        for d in having:
            length = math.sqrt(sum(self._log(t, d, set(range(len(self.texts)))) ** 2 for t in set(self.texts[d])))
            out[d] = (1 + math.log(self.texts[d].count(word))) / length * (1 if d in basis else outside)
        best = [d for d in sorted(out, key=lambda d: (-round(out[d], 12), d))[:most] if out[d]]
        length = math.sqrt(sum(out[d] ** 2 for d in best))
        within = basis if basis & set(having) else every
        return {d: out[d] / length * math.log(1 + len(within) / len(within & set(having))) for d in best}

    def _log(self, word: str, d: int, basis: set[int]) -> float:
        having = sum(word in self.texts[basi] for basi in basis)
        return (1 + math.log(self.texts[d].count(word))) * math.log(1 + len(basis) / having)

    def vector(self, term: str, themes: Sequence[str], most: int | None, outside: float = 0.0) -> dict[int, float]:
        """Return the vector by the paper, or by the best measure with this many documents."""
        basis = self.basis(themes)
        vectors = [
            self.paper_word(word, basis) if most is None else self.best_word(word, basis, most, outside)
            for word in Analyser().terms(term)
        ]
        vectors = [vector for vector in vectors if vector]
        if not vectors and themes:
            return self.vector(term, [], most, outside)
        every = sorted({d for vector in vectors for d in vector})
        return {d: sum(vector.get(d, 0) for vector in vectors) for d in every}

    def paper(self, a: dict[int, float], b: dict[int, float]) -> float:
        if not a or not b:
            return 0
        return 1 / (math.sqrt(sum((a.get(d, 0) - b.get(d, 0)) ** 2 for d in {*a, *b})) + 1)

    def best(self, a: dict[int, float], b: dict[int, float]) -> float:
        if not a or not b:
            return 0
        lengths = math.sqrt(sum(x * x for x in a.values())) * math.sqrt(sum(x * x for x in b.values()))
        return sum(a.get(d, 0) * b.get(d, 0) for d in {*a, *b}) / lengths
