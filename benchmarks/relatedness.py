"""How well measures of relatedness agree with people: Spearman's rank correlation with gold standards.

    python -m benchmarks.relatedness SPACE GOLD...

A gold standard is a file of lines `word word figure`, such as WordSim-353 or MEN.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tidegate import Space
from tidegate.semantics import CosineEsa, Measure, PaperEsa, Relatedness

MEASURES: dict[str, Measure] = {"paper": PaperEsa(), "best, 1,000 documents": CosineEsa(1_000), "best": CosineEsa()}


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; equals share theirs."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    _, place, many = np.unique(np.array(values), return_inverse=True, return_counts=True)
    last = np.cumsum(many)
    return list((last - (many - 1) / 2)[place])


def main(space: str, golds: list[str]) -> None:
    """Print a line for each measure and gold standard."""
    opened = Space.open(space)
    print(opened)
    for gold in golds:
        rows = [line.split() for line in Path(gold).read_text("utf-8").splitlines() if line.strip()]
        people = [float(row[2]) for row in rows]
        for name, measure in MEASURES.items():
            related = Relatedness(opened, measure)
            begin = time.perf_counter()
            found = [related(row[0], row[1]) for row in rows]
            each_us = (time.perf_counter() - begin) / len(rows) * 1e6
            print(f"{Path(gold).stem:20} {name:24} {spearman(found, people):.3f}  {each_us:6.0f} us a pair")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
