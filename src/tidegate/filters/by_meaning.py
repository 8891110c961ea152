"""Evaluates a filter with `~`: by the mapping of each alternative, and the language for the rest.

    a~ = 'x'~ AND b > 3 OR NOT c~ = 'y'      ──▶      a~ = 'x'~  and  b > 3
                                                      (nothing)  and  "_~ c~ = 'y'" < threshold

The alternatives of a filter are those of its canonical form. The predicates with ~ of an alternative are matched
together, as one mapping. One that is negated, or an item of a fuzzy group, is judged alone: its degree is an attribute
of the event, under a reserved name, that what is left of the filter reads like any other. So what is left has no ~.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import FilterTypeError, Problem
from tidegate.filters import columns, evaluate, thematic
from tidegate.filters.arrow_columns import in_one_piece
from tidegate.filters.meaning import Meaning
from tidegate.filters.membership import SLACK
from tidegate.filters.nodes import (
    And,
    Compare,
    Group,
    Item,
    Literal,
    Member,
    Node,
    Or,
    Path,
    Query,
    Semantic,
    Shape,
    predicates,
)
from tidegate.filters.normalize import MAX_CONJUNCTS, push_not_inwards, taken_by, to_dnf
from tidegate.filters.thematic import (
    MOST_PREDICATES,
    Array,
    Meant,
    Predicate,
    Rivals,
    Thematic,
    Tuple,
    rivals_among,
)
from tidegate.filters.tuples import rows_of
from tidegate.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Alternative:
    """One conjunct: what is matched by meaning, if anything is, and what else has to hold."""

    thematic: Thematic | None
    rest: Node
    """Without ~ and without `Not`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A filter with ~ as its alternatives."""

    alternatives: tuple[Alternative, ...]
    lone: Mapping[str, Thematic]
    """Predicates that are judged alone, by the attribute under which the rest reads their degree."""

    @property
    def thematics(self) -> Iterator[Thematic]:
        """All that is matched by meaning."""
        yield from (each.thematic for each in self.alternatives if each.thematic is not None)
        yield from self.lone.values()


def parts_of(query: Query, text: str, least: float) -> Parts:
    """Take a filter in its canonical form apart; `least` is the threshold if it names none.

    Raise `FilterTypeError` where it is too much.
    """
    return _Apart(query, text, least).parts()


@dataclass(slots=True)
class _Apart:
    query: Query
    text: str
    least: float
    lone: dict[str, Thematic] = field(default_factory=dict)

    def parts(self) -> Parts:
        if self.query.threshold is not None:
            assert isinstance(self.query.threshold, Literal)
            self.least = float(self.query.threshold.value)
        alternatives = tuple(map(self.alternative, to_dnf(self.query.root)))
        return Parts(alternatives, self.lone)

    def alternative(self, terms: tuple[Node, ...]) -> Alternative:
        meant = [term for term in terms if isinstance(term, Semantic) and not term.negated]
        rest = tuple(self.without(term) for term in terms if term not in meant)
        if len(meant) > MOST_PREDICATES:
            message = f"expected at most {MOST_PREDICATES} predicates with ~ in one alternative, not {len(meant)}"
            self.refuse(meant[MOST_PREDICATES], message)
        node = rest[0] if len(rest) == 1 else And(rest)
        if not meant:
            return Alternative(None, node)
        return Alternative(self.thematic(meant, taken_by(terms)), node)

    def thematic(self, meant: list[Semantic], taken: frozenset[str] = frozenset()) -> Thematic:
        wanted = tuple(map(self.predicate, meant))
        return Thematic(wanted, frozenset(self.query.themes), self.least, taken)

    def predicate(self, node: Semantic) -> Predicate:
        if not all(isinstance(part, str) for part in node.path.parts):
            self.refuse(node, "expected a whole field beside ~, not an element of an array")
        assert isinstance(node.value, Literal)
        return Predicate(_name(node.path), node.value.value, node.soft_path, node.soft_value)

    def without(self, node: Node) -> Node:
        """What is left of a term: the degrees of predicates that are judged alone are attributes."""
        match node:
            case Semantic(negated=True):
                bound = max(self.least - SLACK, np.nextafter(0.0, 1.0))
                return Compare(self.alone(node), "<", Literal(float(bound), "float"), node.span)
            case Group(items=items) if any(isinstance(item.predicate, Semantic) for item in items):
                return replace(node, items=tuple(map(self.item, items)))
            case And(terms) | Or(terms):
                for each in predicates(node):
                    if isinstance(each, Semantic) and not each.negated:
                        message = f"expected at most {MAX_CONJUNCTS} alternatives of a filter with ~: write fewer ORs"
                        self.refuse(each, message)
                return type(node)(tuple(self.without(term) for term in terms))
        return node

    def item(self, item: Item) -> Item:
        if not isinstance(item.predicate, Semantic):
            return item
        member = Member(self.alone(item.predicate), _AS_IT_IS, item.predicate.span)
        return replace(item, predicate=member, negated=item.negated ^ item.predicate.negated)

    def alone(self, node: Semantic) -> Path:
        wanted = replace(self.thematic([node]), threshold=0.0)
        name = f"_~ {wanted.predicates[0]} {sorted(wanted.themes)}"  # the same for the same in every filter
        self.lone[name] = wanted
        return Path((name,))

    def refuse(self, node: Semantic, message: str) -> None:
        raise FilterTypeError(self.text, [Problem(node.span[0], message, max(1, node.span[1] - node.span[0]))])


_AS_IT_IS = Shape("TRAPEZOID", tuple(Literal(edge, "float") for edge in (0.0, 1.0, 1.0, 2.0)))
"""From 0 to 1 the membership of a number is that number."""


def _name(path: Path) -> str:
    return ".".join(map(str, path.parts))


class ByMeaning:
    """A filter with ~ that can be evaluated: obvious, and the judge of all that is faster."""

    def __init__(self, parts: Parts, schema: Schema | None, meaning: Meaning, rivals: Rivals | None = None) -> None:
        self.parts, self._schema, self._meaning = parts, schema, meaning
        self._rivals = rivals_among(parts.thematics) if rivals is None else rivals
        self._tuples = thematic.tuple_reader(schema)
        self._grades = [evaluate.grader(each.rest) for each in parts.alternatives]

    def truth(self, event: Mapping[str, Any]) -> bool | None:
        """Say True, False, or None where the event does not tell."""
        return self._judged(event)[0]

    def degree(self, event: Mapping[str, Any]) -> float:
        """Say how well an event fits, 0 to 1; 0 where it does not tell."""
        found, degree = self._judged(event)
        return 0.0 if found is None else degree

    def mappings(self, event: Mapping[str, Any], k: int = 1) -> list[Meant]:
        """The `k` best mappings of the alternatives whose rest holds, whatever the threshold, the best first."""
        tuples, themes, event = self._read(event)
        found: list[Meant] = []
        for each in self.parts.alternatives:
            if each.thematic is not None and evaluate.truth(each.rest, event):
                found += thematic.mappings(self._meaning.semantics, each.thematic, tuples, themes, k, self._rivals)
        return sorted(found, key=lambda one: -one.degree)[:k]

    def judged(self, batch: pa.RecordBatch) -> tuple[Array, Array]:
        """Which events of a batch match, and how well each fits."""
        batch = in_one_piece(batch)
        rows, own = rows_of(batch, self._schema)
        of = [self._meaning.themes | themes for themes in own]
        for name, wanted in self.parts.lone.items():
            degrees = [self._degree(wanted, tuples, themes) for tuples, themes in zip(rows, of, strict=True)]
            batch = batch.append_column(name, pa.array(degrees, pa.float64()))
        true, unknown = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        best = np.zeros(len(rows))
        for each in self.parts.alternatives:
            holds, fits = columns.judged(each.rest, batch)
            fails = columns.mask(push_not_inwards(each.rest, negated=True), batch)
            if each.thematic is not None:
                for n in np.flatnonzero(~fails).tolist():
                    degree = self._degree(each.thematic, rows[n], of[n])
                    reached = degree is not None and each.thematic.reached(degree)
                    holds[n] &= reached
                    fails[n] |= degree is not None and not reached
                    fits[n] = min(fits[n], degree or 0.0)
            true |= holds
            unknown |= ~holds & ~fails
            best = np.maximum(best, fits)
        return true, np.where(unknown & ~true, 0.0, best)

    def _judged(self, event: Mapping[str, Any]) -> tuple[bool | None, float]:
        tuples, themes, event = self._read(event)
        true, unknown, best = False, False, 0.0
        for each, grade in zip(self.parts.alternatives, self._grades, strict=True):
            holds = evaluate.truth(each.rest, event)
            fits = grade(event)
            if each.thematic is not None and holds is not False:
                degree = self._degree(each.thematic, tuples, themes)
                fits = min(fits, degree or 0.0)
                if degree is None or not each.thematic.reached(degree):
                    holds = None if degree is None else False
            true |= holds is True
            unknown |= holds is None
            best = max(best, fits)
        return (True if true else None if unknown else False), best

    def _read(self, event: Mapping[str, Any]) -> tuple[list[Tuple], frozenset[str], Mapping[str, Any]]:
        """An event's tuples, its tags and its service's, and the event with the degrees of what is judged alone."""
        tuples, themes = self._tuples(event), self._meaning.themes | thematic.themes_of(event)
        if not self.parts.lone:
            return tuples, themes, event
        degrees = {name: self._degree(wanted, tuples, themes) for name, wanted in self.parts.lone.items()}
        return tuples, themes, {**event, **degrees}

    def _degree(self, wanted: Thematic, tuples: list[Tuple], themes: frozenset[str]) -> float | None:
        """How well an event fits by meaning; None where a field that is named without ~ is not there."""
        named = {each.attribute for each in wanted.predicates if not each.soft_attribute}
        if not named <= {attribute for attribute, _ in tuples}:
            return None
        return thematic.degree(self._meaning.semantics, wanted, tuples, themes, self._rivals)
