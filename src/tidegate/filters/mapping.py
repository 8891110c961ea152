"""Assigns tuples of an event to predicates: the best mappings and their probabilities.

Pure functions over a matrix of similarities, one row per predicate and one column per tuple. The best mapping is an
assignment problem (Hungarian method); the next best come from Murty's partition of the remaining assignments. Both take
polynomial time, also if many similarities are equal.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import count

import numpy as np

from tidegate.filters.vectors import NumpyArray


@dataclass(frozen=True, slots=True)
class Mapping:
    """An assignment of a tuple to every predicate: no tuple twice, each similarity above 0."""

    tuples: tuple[int, ...]
    """Column (tuple) of each row (predicate)."""
    similarities: tuple[float, ...]
    """Similarity of each predicate to its tuple."""
    degree: float
    """Geometric mean of the similarities, so that it does not fall with the number of predicates."""
    probability: float
    """Product of the similarities divided by its sum over all mappings; sums to 1 over all mappings."""
    correspondences: tuple[float, ...]
    """For each predicate, the similarity of its tuple divided by the sum over all tuples."""


def best_mappings(similarities: NumpyArray, k: int = 1) -> list[Mapping]:
    """Return the `k` best mappings, best first; fewer if there are fewer, none if a predicate has no tuple.

    Without predicates there is one mapping, the empty one, with degree 1.
    """
    with np.errstate(divide="ignore"):
        costs = -np.log(similarities)
    assignments = _cheapest(costs, k)
    if not assignments:
        return []
    # Without rounding, the sum is never less than its greatest term.
    everything = max(log_permanent(similarities), -assignments[0][0])
    rows = similarities.sum(axis=1)
    out = []
    for cost, tuples in assignments:
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


def best_degree(similarities: NumpyArray) -> float:
    """Return the degree of the best mapping; 0 if there is none."""
    with np.errstate(divide="ignore"):
        assignments = _cheapest(-np.log(similarities), 1)
    return 0.0 if not assignments else math.exp(-assignments[0][0] / len(similarities)) if len(similarities) else 1.0


def log_permanent(similarities: NumpyArray) -> float:
    """Return the logarithm of the sum, over all mappings, of the products of their similarities.

    Adds tuples one by one and keeps one sum per set of predicates that have a tuple. Sums are logarithms, because
    products of small similarities underflow. Exponential in the number of predicates (16 take 65,536 sums), linear in
    the number of tuples.
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


def _cheapest(costs: NumpyArray, k: int) -> list[tuple[float, tuple[int, ...]]]:
    """Return the `k` cheapest assignments with their costs (Murty 1968).

    The assignments that differ from a found one are split into disjoint parts: part i agrees with it in the first i
    rows and differs in the next. The cheapest assignment of each part waits in a heap.
    """
    order = count()
    waiting: list[tuple[float, int, tuple[int, ...], NumpyArray]] = []

    def consider(allowed: NumpyArray) -> None:
        assignment = _assign(allowed.tolist())
        if assignment is not None:
            cost = math.fsum(costs[row, column] for row, column in enumerate(assignment))
            heapq.heappush(waiting, (cost, next(order), assignment, allowed))

    consider(costs)
    out: list[tuple[float, tuple[int, ...]]] = []
    while waiting and len(out) < k:
        cost, _, assignment, allowed = heapq.heappop(waiting)
        out.append((cost, assignment))
        if len(out) == k:
            break
        for row, column in enumerate(assignment):
            differing = allowed.copy()
            differing[row, column] = math.inf
            consider(differing)
            cost_here = allowed[row, column]
            allowed = allowed.copy()
            allowed[row] = math.inf
            allowed[row, column] = cost_here
    return out


def _assign(costs: list[list[float]]) -> tuple[int, ...] | None:
    """Return the cheapest assignment of columns to rows (Hungarian method); None if no finite one exists.

    Rows are added one by one. Each finds the cheapest path of exchanges to a free column by reduced costs, which the
    potentials of rows and columns keep from being negative.
    """
    rows, columns = len(costs), len(costs[0]) if costs else 0
    row_potential, column_potential = [0.0] * rows, [0.0] * (columns + 1)
    owner = [-1] * (columns + 1)
    """Row of each column; the last column is a placeholder for the row being added."""
    for added_row in range(rows):
        owner[columns] = added_row
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
