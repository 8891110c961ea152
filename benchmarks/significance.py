"""Permutation tests: do two groups of runs differ by more than chance?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations, product


def by_permutation(more: Sequence[float], less: Sequence[float]) -> float:
    """Return the probability of a difference of means this large, if the labels of the runs were random.

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
    # The total is the same for all permutations, so one mean determines the other.
    means = [statistics.fmean(dealt) for dealt in combinations(runs, len(more))]
    return sum(mean >= seen - 1e-12 * abs(seen) for mean in means) / len(means)


def by_signs(differences: Sequence[float]) -> float:
    """Return the probability of a mean difference of pairs this large, if the sides of each pair were random.

    Exact: all signs are counted. For runs that were made in pairs, so that what
    drifts between pairs is in both sides of each. It asks whether the first side
    is less. Five pairs make 32 ways, so the least it can say is 0.03.

    >>> by_signs([1, 2, 3])
    0.125
    >>> by_signs([-1, 2, -3])
    0.75
    """
    if not differences:
        raise ValueError("expected at least one pair")
    seen = math.fsum(differences)
    slack = 1e-12 * max(1.0, abs(seen))
    sums = [math.fsum(signs) for signs in product(*((each, -each) for each in differences))]
    return sum(each >= seen - slack for each in sums) / len(sums)
