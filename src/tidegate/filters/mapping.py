"""Which predicate means which tuple: the best ways to give every predicate a tuple of its own.

Pure: from a matrix of similarities, a row a predicate and a column a tuple, to mappings and their probabilities.
The best mapping is an assignment problem (Hungarian method), the next best are what it leaves (Murty's partition):
both take polynomial time, however alike the similarities are.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A tuple for every predicate, no tuple twice, each pair more similar than not at all."""

    tuples: tuple[int, ...]
    """The column of each row."""
    similarities: tuple[float, ...]
    """Of each predicate and its tuple."""
    degree: float
    """The geometric mean of the similarities, so that it does not fall with the number of predicates."""
    probability: float
    """The product of the similarities, as a part of that of all mappings: these sum to 1."""
    correspondences: tuple[float, ...]
    """Of each predicate: the similarity of its tuple, as a part of that of all: over the tuples these sum to 1."""


def best_mappings(similarities: Array, k: int = 1) -> list[Mapping]:
    """The `k` best mappings, the best first; fewer where there are no more, none where a predicate has no tuple.

    Without predicates there is one mapping, the empty one, of degree 1.
    """
    with np.errstate(divide="ignore"):
        costs = -np.log(similarities)
    found = _cheapest(costs, k)
    if not found:
        return []
    # The sum can't be less than its greatest part but for rounding.
    everything = max(log_permanent(similarities), -found[0][0])
    rows = similarities.sum(axis=1)
    out = []
    for cost, tuples in found:
        chosen = similarities[np.arange(len(tuples)), list(tuples)]
        out.append(
            Mapping(
                tuples,
                tuple(chosen.tolist()),
                math.exp(-cost / len(tuples)) if tuples else 1.0,
                math.exp(-cost - everything),
                tuple((chosen / rows).tolist()),
            )
        )
    return out


def best_degree(similarities: Array) -> float:
    """The degree of the best mapping alone; 0 where there is none."""
    with np.errstate(divide="ignore"):
        found = _cheapest(-np.log(similarities), 1)
    return 0.0 if not found else math.exp(-found[0][0] / len(similarities)) if len(similarities) else 1.0


def log_permanent(similarities: Array) -> float:
    """The logarithm of the sum over all mappings of the products of their similarities.

    Tuples come one by one; what is kept is the sum for every set of predicates that have theirs, as a logarithm, as
    products of what is hardly similar leave the range of floats. Exponential in the predicates, 16 of which take 65,536
    sums, and linear in the tuples.
    """
    predicates, tuples = similarities.shape
    with np.errstate(divide="ignore"):
        logs = np.log(similarities)
    sets = np.arange(1 << predicates)
    without = [sets[sets & (1 << row) == 0] for row in range(predicates)]
    sums = np.full(1 << predicates, -np.inf)
    sums[0] = 0.0
    for column in range(tuples):
        grown = sums.copy()
        for row in range(predicates):
            if logs[row, column] > -np.inf:
                with_it = without[row] | (1 << row)
                grown[with_it] = np.logaddexp(grown[with_it], sums[without[row]] + logs[row, column])
        sums = grown
    return float(sums[-1])


def _cheapest(costs: Array, k: int) -> list[tuple[float, tuple[int, ...]]]:
    """The `k` cheapest assignments with their costs (Murty 1968).

    What an assignment leaves is cut into parts that share nothing: those that agree with it in the first i rows and
    differ in the next. The cheapest of each part waits its turn.
    """
    order = count()
    waiting: list[tuple[float, int, tuple[int, ...], Array]] = []

    def consider(allowed: Array) -> None:
        found = _assign(allowed.tolist())
        if found is not None:
            cost = math.fsum(costs[row, column] for row, column in enumerate(found))
            heapq.heappush(waiting, (cost, next(order), found, allowed))

    consider(costs)
    out: list[tuple[float, tuple[int, ...]]] = []
    while waiting and len(out) < k:
        cost, _, found, allowed = heapq.heappop(waiting)
        out.append((cost, found))
        if len(out) == k:
            break
        for row, column in enumerate(found):
            differing = allowed.copy()
            differing[row, column] = math.inf
            consider(differing)
            kept = allowed[row, column]
            allowed = allowed.copy()
            allowed[row] = math.inf
            allowed[row, column] = kept
    return out


def _assign(costs: list[list[float]]) -> tuple[int, ...] | None:
    """The cheapest column for each row, no column twice (the Hungarian method); None: there is none of finite cost.

    Rows join one by one. Each finds the cheapest path of exchanges to a column that is free, by reduced costs,
    which potentials of rows and columns keep from being negative.
    """
    rows, columns = len(costs), len(costs[0]) if costs else 0
    row_potential, column_potential = [0.0] * rows, [0.0] * (columns + 1)
    owner = [-1] * (columns + 1)
    """The row of each column; the last column stands for the row that is to join."""
    for joining in range(rows):
        owner[columns] = joining
        at = columns
        nearest, came_from = [math.inf] * columns, [columns] * columns
        done = [False] * (columns + 1)
        while owner[at] >= 0:
            done[at] = True
            row = owner[at]
            for column in range(columns):
                if not done[column]:
                    reduced = costs[row][column] - row_potential[row] - column_potential[column]
                    if reduced < nearest[column]:
                        nearest[column], came_from[column] = reduced, at
            reachable = [column for column in range(columns) if not done[column]]
            step = min((nearest[column] for column in reachable), default=math.inf)
            if step == math.inf:
                return None
            for column in range(columns + 1):
                if done[column]:
                    row_potential[owner[column]] += step
                    column_potential[column] -= step
            for column in reachable:
                nearest[column] -= step
            at = min(reachable, key=nearest.__getitem__)
        while at != columns:
            owner[at], at = owner[came_from[at]], came_from[at]
    of_row = {owner[column]: column for column in range(columns) if owner[column] >= 0}
    return tuple(of_row[row] for row in range(rows))
