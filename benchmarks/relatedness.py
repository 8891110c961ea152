"""Agreement of relatedness measures with human judgements: Spearman's rank correlation with gold standards.

    python -m benchmarks.relatedness SPACE GOLD...

A gold standard is a file of lines `word word figure`, such as WordSim-353 or MEN.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tidegate import Space
from tidegate.filters.vectors import NumpyArray
from tidegate.semantics import CosineEsa, Embedding, Esa, Measure, PaperEsa, both

Figures = Callable[[Sequence[str], Sequence[str]], NumpyArray]


def measures(space: Space) -> dict[str, Figures]:
    """Return the relatedness of many terms by each installed measure."""
    esa: dict[str, Measure] = {"paper": PaperEsa(), "best, 1,000 documents": CosineEsa(1_000), "best": CosineEsa()}
    found: dict[str, Figures] = {
        name: partial(Esa(space, each).figures, themes=(), event_themes=()) for name, each in esa.items()
    }
    if Embedding.installed():
        embedding = Embedding.open()
        found |= {"embedding": embedding.figures, "best and embedding": both(space, embedding).evidence}
    return found


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the rank correlation; equal values share a rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    _, place, many = np.unique(np.array(values), return_inverse=True, return_counts=True)
    last = np.cumsum(many)
    return list((last - (many - 1) / 2)[place])


def main(space: str, golds: list[str]) -> None:
    """Print a line per measure and gold standard."""
    opened = Space.open(space)
    print(opened)
    for gold in golds:
        rows = [line.split() for line in Path(gold).read_text("utf-8").splitlines() if line.strip()]
        people = [float(row[2]) for row in rows]
        left, right = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
        for name, figures in measures(opened).items():
            begin = time.perf_counter()
            matrix = np.nan_to_num(figures(left, right), neginf=-1e9)
            taken_ms = (time.perf_counter() - begin) * 1e3
            found = [float(matrix[left.index(a), right.index(b)]) for a, b, *_ in rows]
            print(
                f"{Path(gold).stem:20} {name:24} {spearman(found, people):.3f}  {taken_ms:6.0f} ms for {matrix.size:,}"
            )


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
