"""The numba loops of the index of filters with ~. Numbers represent the words.

A *row* holds, for one tuple of an event, the numbers of the predicates that are similar enough to matter, in ascending
order, and their similarities. An event is a set of rows. A conjunct is a list of predicate numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tidegate.filters.thematic import SAME_EVIDENCE

_compiled: Any = njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


@_compiled
def similar_rows(
    names: Any,
    values: Any,
    attribute: Any,
    value: Any,
    first: Any,
    value_row: Any,
    bound: Any,
    group_bound: Any,
    rivalry: Any,
    name_evidence: Any,
    value_evidence: Any,
    theme: Any,
    offsets: Any,
    predicates: Any,
    similarities: Any,
) -> Any:
    """Fill the rows of some tuples, and return the number of entries needed; above the room, the output is incomplete.

    `names` and `values`: similarity of each subscribed name to each attribute, and of each subscribed value to each
    value, one line per term of events. Predicates are ordered by name: those of name g are `first[g]` to `first[g +
    1]`. `bound`: minimum similarity that can be part of a match; `group_bound`: the minimum over a name's predicates.
    With rivalry, a similarity is the predicate's chance against the best other predicate of its theme
    (`thematic.competed`).
    """
    size = 0
    groups = len(group_bound)
    first_best, second = np.full(groups, -np.inf), np.full(groups, -np.inf)
    for n in range(len(attribute)):
        by_name, by_value = names[attribute[n]], values[value[n]]
        if rivalry > 0.0:
            first_best[:] = second[:] = -np.inf
            by_name_evidence, by_value_evidence = name_evidence[attribute[n]], value_evidence[value[n]]
            top = by_value_evidence.max()
            for group in range(groups):
                of = theme[group]
                for predicate in range(first[group], first[group + 1]):
                    if by_name_evidence[group] + top <= second[of]:
                        break
                    evidence = by_name_evidence[group] + by_value_evidence[value_row[predicate]]
                    if evidence > first_best[of]:
                        if evidence - SAME_EVIDENCE > first_best[of]:
                            second[of] = first_best[of]
                        first_best[of] = evidence
                    elif evidence < first_best[of] - SAME_EVIDENCE:
                        second[of] = max(second[of], evidence)
        for group in range(groups):
            one = by_name[group]
            if one <= 0.0 or one < group_bound[group]:
                continue
            for predicate in range(first[group], first[group + 1]):
                similarity = one * by_value[value_row[predicate]]
                if similarity <= 0.0 or similarity < bound[predicate]:
                    continue
                if rivalry > 0.0:
                    evidence = name_evidence[attribute[n], group] + value_evidence[value[n], value_row[predicate]]
                    best = first_best[theme[group]]
                    other = second[theme[group]] if evidence >= best - SAME_EVIDENCE else best
                    similarity /= 1.0 + np.exp(rivalry * (other - evidence))
                if similarity > 0.0 and similarity >= bound[predicate]:
                    if size < len(predicates):
                        predicates[size] = predicate
                        similarities[size] = similarity
                    size += 1
        offsets[n + 1] = size
    return size


MAX_SEARCHED_TUPLES = 10
"""Tuples of an event up to which mappings of three or four predicates are found by search; more may take too long."""
MAX_SUBSET_PREDICATES = 6
"""Predicates up to which the best mapping is found by dynamic programming over all subsets."""


@_compiled
def match(
    rows: Any,
    begin: Any,
    row_start: Any,
    row_end: Any,
    row_predicate: Any,
    row_similarity: Any,
    of_start: Any,
    of_conjunct: Any,
    first: Any,
    predicate: Any,
    need: Any,
    table: Any,
    out_event: Any,
    out_conjunct: Any,
    out_degree: Any,
) -> Any:
    """Find the conjuncts that events reach, and their degrees. Returns the next event, as room may run out, and the
    number found.

    `rows`: the rows of each event, -1 for none. A conjunct is examined if an event has the one predicate it is listed
    under. The product of each predicate's best similarity is an upper bound; if no tuple is the best of two predicates,
    it is also the product of the best mapping. `table`: scratch space for the similarity of each predicate to each
    tuple of an event.
    """
    events, width = rows.shape
    predicates, conjuncts = len(table), len(need)
    best, next_best, where = np.empty(predicates), np.empty(predicates), np.empty(predicates, np.int64)
    seen, touched = np.full(predicates, -1, np.int64), np.empty(predicates, np.int32)
    sums = np.empty(1 << MAX_SUBSET_PREDICATES)
    live = np.empty(width, np.int32)
    found = 0
    for event in range(begin, events):
        if found + conjuncts > len(out_event):
            return event, found
        tuples, some = 0, 0
        for column in range(width):
            row = rows[event, column]
            if row >= 0 and row_start[row] < row_end[row]:
                live[tuples] = row
                tuples += 1
        for place in range(tuples):
            for n in range(row_start[live[place]], row_end[live[place]]):
                p = row_predicate[n]
                similarity = row_similarity[n]
                if seen[p] != event:
                    seen[p] = event
                    best[p] = similarity
                    next_best[p] = 0.0
                    where[p] = place
                    table[p, :tuples] = 0.0
                    touched[some] = p
                    some += 1
                elif similarity > best[p]:
                    next_best[p] = best[p]
                    best[p] = similarity
                    where[p] = place
                elif similarity > next_best[p]:
                    next_best[p] = similarity
                table[p, place] = similarity
        for n in range(some):
            for at in range(of_start[touched[n]], of_start[touched[n] + 1]):
                conjunct = of_conjunct[at]
                low, high = first[conjunct], first[conjunct + 1]
                least = need[conjunct]
                product, taken, clash = 1.0, 0, False
                for i in range(low, high):
                    p = predicate[i]
                    if seen[p] != event:
                        product = 0.0
                        break
                    product *= best[p]
                    if product < least:
                        break
                    bit = 1 << (where[p] & 63)
                    clash = clash or (taken & bit) != 0
                    taken |= bit
                if product <= 0.0 or product < least:
                    continue
                if clash:
                    if high - low == 2:  # one of the two takes its second best tuple
                        a, b = predicate[low], predicate[low + 1]
                        product = max(best[a] * next_best[b], next_best[a] * best[b])
                    elif high - low <= 4 and tuples <= MAX_SEARCHED_TUPLES:
                        product = _searched(table, predicate[low:high], best, tuples)
                    elif high - low <= MAX_SUBSET_PREDICATES:
                        product = _best_product(table, predicate[low:high], tuples, sums)
                    else:
                        product = np.exp(-_cheapest(-np.log(table[predicate[low:high], :tuples])))
                    if product <= 0.0 or product < least:
                        continue
                out_event[found] = event
                out_conjunct[found] = conjunct
                out_degree[found] = _root(product, high - low)
                found += 1
    return events, found


@_compiled
def _searched(table: Any, predicates: Any, best: Any, tuples: Any) -> Any:
    """As `_best_product`, for three or four predicates: branch and bound over mappings."""
    one, two, three = table[predicates[0]], table[predicates[1]], table[predicates[2]]
    four = table[predicates[len(predicates) - 1]]
    top_three = best[predicates[2]]
    top_two = best[predicates[1]] * top_three
    found = 0.0
    for d in range(tuples if len(predicates) == 4 else 1):
        last = d if len(predicates) == 4 else -1
        begun = four[d] if last >= 0 else 1.0
        if begun * best[predicates[0]] * top_two <= found:
            continue
        for a in range(tuples):
            first = begun * one[a]
            if a == last or first * top_two <= found:
                continue
            for b in range(tuples):
                second = first * two[b]
                if b in (a, last) or second * top_three <= found:
                    continue
                for c in range(tuples):
                    third = second * three[c]
                    if third > found and c != a and c != b and c != last:
                        found = third
    return found


@_compiled
def _root(product: Any, size: Any) -> Any:
    """Return the geometric mean of some factors; `pow` would take longer than everything else."""
    if size == 1:
        return product
    if size == 2:
        return np.sqrt(product)
    if size == 3:
        return np.cbrt(product)
    return np.sqrt(np.sqrt(product)) if size == 4 else product ** (1.0 / size)


@_compiled
def _best_product(table: Any, predicates: Any, tuples: Any, best: Any) -> Any:
    """Return the greatest product of similarities over mappings of predicates to distinct tuples; 0 if there is no
    mapping.

    Adds one tuple at a time and keeps the best product for every subset of assigned predicates.
    """
    size = len(predicates)
    full = (1 << size) - 1
    best[1 : full + 1] = 0.0
    best[0] = 1.0
    for column in range(tuples):
        for taken in range(full, 0, -1):
            most = best[taken]
            for i in range(size):
                if taken >> i & 1:
                    product = best[taken ^ (1 << i)] * table[predicates[i], column]
                    if product > most:
                        most = product
            best[taken] = most
    return best[full]


@_compiled
def _cheapest(
    costs: Any,
) -> Any:
    """Return the cost of the cheapest assignment of columns to rows (Hungarian method); infinite if there is none."""
    size, columns = costs.shape
    if columns < size:
        return np.inf
    of_row, of_column = np.zeros(size), np.zeros(columns + 1)
    owner = np.full(columns + 1, -1, np.int64)
    nearest, came, done = np.empty(columns), np.empty(columns, np.int64), np.empty(columns + 1, np.bool_)
    for joining in range(size):
        owner[columns] = joining
        at = columns
        nearest[:] = np.inf
        came[:] = columns
        done[:] = False
        while owner[at] >= 0:
            done[at] = True
            row = owner[at]
            step, following = np.inf, -1
            for column in range(columns):
                if done[column]:
                    continue
                reduced = costs[row, column] - of_row[row] - of_column[column]
                if reduced < nearest[column]:
                    nearest[column] = reduced
                    came[column] = at
                if nearest[column] < step:
                    step = nearest[column]
                    following = column
            if following < 0:
                return np.inf
            for column in range(columns + 1):
                if done[column]:
                    of_row[owner[column]] += step
                    of_column[column] -= step
                elif column < columns:
                    nearest[column] -= step
            at = following
        while at != columns:
            before = came[at]
            owner[at] = owner[before]
            at = before
    total = 0.0
    for column in range(columns):
        if owner[column] >= 0:
            total += costs[owner[column], column]
    return total


@_compiled
def list_hashes(begin: Any, end: Any, codes: Any, out: Any) -> None:
    """Compute a hash of each list of codes; equal lists have equal hashes."""
    for n in range(len(begin)):
        value = np.uint64(1469598103934665603)
        for at in range(begin[n], end[n]):
            value = (value ^ np.uint64(codes[at] + 1)) * np.uint64(1099511628211)
        out[n] = value


@_compiled
def same_lists(begin: Any, end: Any, codes: Any, of: Any) -> Any:
    """Return whether each list equals the list chosen to represent it."""
    for n in range(len(begin)):
        size, other = end[n] - begin[n], of[n]
        if end[other] - begin[other] != size:
            return False
        for at in range(size):
            if codes[begin[n] + at] != codes[begin[other] + at]:
                return False
    return True


def warm_up() -> None:
    """Compile all kernels, or load them from the cache, by running each on a tiny input."""
    one, index, wide = np.ones(1), np.zeros(1, np.int64), np.ones((1, 1))
    some, few = np.array([0, 1]), np.zeros(1, np.int32)
    similar_rows(
        *(wide, wide, index, index, some, index, one, one),
        *(1.0, wide, wide, index, some.copy(), few.copy(), one.copy()),
    )
    rows, room = np.zeros((1, 1), np.int32), (np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1))
    match(rows, 0, index, index + 1, few, one, some, few, some, few, one, wide.copy(), *room)
    list_hashes(index, index, index, np.zeros(1, np.uint64))
    same_lists(index, index, index, index)
