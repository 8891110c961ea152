"""Whether two groups of runs differ by more than chance."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import combinations


def by_permutation(more: Sequence[float], less: Sequence[float]) -> float:
    """How likely a difference of means as large as this one is, had the runs' labels been dealt by chance.

    Exact: all ways to deal them are counted, this one too. It asks whether `more`
    is more, not whether they differ. Five runs each make 252 ways, so the least
    it can say is 0.004.

    >>> by_permutation([9, 8, 7], [1, 2, 3])
    0.05
    >>> by_permutation([1, 2, 3], [1, 2, 3]) > 0.5
    True
    """
    if not more or not less:
        raise ValueError(f"expected runs on both sides, not {len(more)} and {len(less)}")
    runs = [*more, *less]
    seen = statistics.fmean(more)
    # The sum of all is the same however they are dealt: the larger one mean, the smaller the other.
    means = [statistics.fmean(dealt) for dealt in combinations(runs, len(more))]
    return sum(mean >= seen - 1e-12 * abs(seen) for mean in means) / len(means)
