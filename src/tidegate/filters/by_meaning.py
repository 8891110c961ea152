"""Evaluates filters with `~`.

    a~ = 'x'~ AND b > 3 OR NOT c~ = 'y'      ──▶      a~ = 'x'~  and  b > 3
                                                      (nothing)  and  "_~ c~ = 'y'" < threshold

The alternatives of a filter are those of its canonical form. The predicates with ~ of one alternative are matched
together, as one mapping. A predicate with ~ that is negated, or that is an item of a fuzzy group, is evaluated alone:
its degree is added to the event as an attribute with a reserved name. So the rest of each alternative has no ~ and is
evaluated like any other filter.
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
    FuzzyShape,
    Group,
    Item,
    Literal,
    Member,
    Node,
    Or,
    Path,
    Query,
    Semantic,
    predicates,
)
from tidegate.filters.normalize import MAX_CONJUNCTS, push_not_inwards, taken_by, to_dnf
from tidegate.filters.thematic import (
    MAX_PREDICATES,
    Meant,
    Rivals,
    Thematic,
    ThematicPredicate,
    Tuple,
    rivals_among,
)
from tidegate.filters.tuples import rows_of
from tidegate.filters.vectors import NumpyArray
from tidegate.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Alternative:
    """One conjunct: the predicates with ~, if there are any, and the rest of the conjunct."""

    thematic: Thematic | None
    rest: Node
    """The other predicates; without ~ and without `Not`."""


@dataclass(frozen=True, slots=True)
class SemanticParts:
    """A filter with ~, split into its alternatives."""

    alternatives: tuple[Alternative, ...]
    lone: Mapping[str, Thematic]
    """Predicates that are evaluated alone, by the attribute from which the rest reads their degree."""

    @property
    def thematics(self) -> Iterator[Thematic]:
        """All predicates with ~: those of the alternatives, then those evaluated alone."""
        yield from (alternative.thematic for alternative in self.alternatives if alternative.thematic is not None)
        yield from self.lone.values()


def parts_of(query: Query, text: str, least: float) -> SemanticParts:
    """Split a filter in canonical form; `least` is the threshold if the filter names none.

    Raises `FilterTypeError` if the filter has too many predicates or alternatives with ~, or ~ on an array element.
    """
    return _Splitter(query, text, least).parts()


@dataclass(slots=True)
class _Splitter:
    """Splits one filter; see `parts_of`."""

    query: Query
    text: str
    least: float
    lone: dict[str, Thematic] = field(default_factory=dict)

    def parts(self) -> SemanticParts:
        if self.query.threshold is not None:
            assert isinstance(self.query.threshold, Literal)
            self.least = float(self.query.threshold.value)
        alternatives = tuple(map(self.alternative, to_dnf(self.query.root)))
        return SemanticParts(alternatives, self.lone)

    def alternative(self, terms: tuple[Node, ...]) -> Alternative:
        meant = [term for term in terms if isinstance(term, Semantic) and not term.negated]
        rest = tuple(self.without(term) for term in terms if term not in meant)
        if len(meant) > MAX_PREDICATES:
            message = f"expected at most {MAX_PREDICATES} predicates with ~ in one alternative, not {len(meant)}"
            self.fail(meant[MAX_PREDICATES], message)
        node = rest[0] if len(rest) == 1 else And(rest)
        if not meant:
            return Alternative(None, node)
        return Alternative(self.thematic(meant, taken_by(terms)), node)

    def thematic(self, meant: list[Semantic], taken: frozenset[str] = frozenset()) -> Thematic:
        wanted = tuple(map(self.predicate, meant))
        return Thematic(wanted, frozenset(self.query.themes), self.least, taken)

    def predicate(self, node: Semantic) -> ThematicPredicate:
        if not all(isinstance(part, str) for part in node.path.parts):
            self.fail(node, "expected a whole field beside ~, not an element of an array")
        assert isinstance(node.value, Literal)
        return ThematicPredicate(_name(node.path), node.value.value, node.soft_path, node.soft_value)

    def without(self, node: Node) -> Node:
        """Return a term without ~: it reads the degrees of predicates that are evaluated alone as attributes."""
        match node:
            case Semantic(negated=True):
                bound = max(self.least - SLACK, np.nextafter(0.0, 1.0))
                return Compare(self.alone(node), "<", Literal(float(bound), "float"), node.span)
            case Group(items=items) if any(isinstance(item.predicate, Semantic) for item in items):
                return replace(node, items=tuple(map(self.item, items)))
            case And(terms) | Or(terms):
                for inner in predicates(node):
                    if isinstance(inner, Semantic) and not inner.negated:
                        message = f"expected at most {MAX_CONJUNCTS} alternatives of a filter with ~: write fewer ORs"
                        self.fail(inner, message)
                return type(node)(tuple(self.without(term) for term in terms))
        return node

    def item(self, item: Item) -> Item:
        if not isinstance(item.predicate, Semantic):
            return item
        member = Member(self.alone(item.predicate), _IDENTITY, item.predicate.span)
        return replace(item, predicate=member, negated=item.negated ^ item.predicate.negated)

    def alone(self, node: Semantic) -> Path:
        wanted = replace(self.thematic([node]), threshold=0.0)
        name = f"_~ {wanted.predicates[0]} {sorted(wanted.themes)}"  # equal predicates share a name
        self.lone[name] = wanted
        return Path((name,))

    def fail(self, node: Semantic, message: str) -> None:
        raise FilterTypeError(self.text, [Problem(node.span[0], message, max(1, node.span[1] - node.span[0]))])


_IDENTITY = FuzzyShape("TRAPEZOID", tuple(Literal(edge, "float") for edge in (0.0, 1.0, 1.0, 2.0)))
"""A membership function that returns its argument, for numbers from 0 to 1."""


def _name(path: Path) -> str:
    return ".".join(map(str, path.parts))


class ByMeaning:
    """Evaluates a filter with ~ event by event. The oracle that tests compare `matching.meaning_index` with.

    Not thread-safe, because its `Semantics` need not be.
    """

    def __init__(
        self, parts: SemanticParts, schema: Schema | None, meaning: Meaning, rivals: Rivals | None = None
    ) -> None:
        self.parts, self._schema, self._meaning = parts, schema, meaning
        self._rivals = rivals_among(parts.thematics) if rivals is None else rivals
        self._tuples = thematic.tuple_reader(schema)
        self._grades = [evaluate.grader(alternative.rest) for alternative in parts.alternatives]

    def truth(self, event: Mapping[str, Any]) -> bool | None:
        """Return True, False, or None if the event lacks a value that decides."""
        return self._judged(event)[0]

    def degree(self, event: Mapping[str, Any]) -> float:
        """Return how well an event fits, 0 to 1; 0 if unknown."""
        truth, degree = self._judged(event)
        return 0.0 if truth is None else degree

    def mappings(self, event: Mapping[str, Any], k: int = 1) -> list[Meant]:
        """Return the `k` best mappings of the alternatives whose rest is true, best first, also below the threshold."""
        tuples, themes, event = self._read(event)
        mappings: list[Meant] = []
        for alternative in self.parts.alternatives:
            if alternative.thematic is not None and evaluate.truth(alternative.rest, event):
                mappings += thematic.mappings(
                    self._meaning.semantics, alternative.thematic, tuples, themes, k, self._rivals
                )
        return sorted(mappings, key=lambda mapping: -mapping.degree)[:k]

    def judged(self, batch: pa.RecordBatch) -> tuple[NumpyArray, NumpyArray]:
        """Return which events of a batch match, and the degree of each."""
        batch = in_one_piece(batch)
        rows, own = rows_of(batch, self._schema)
        of = [self._meaning.themes | themes for themes in own]
        for name, wanted in self.parts.lone.items():
            degrees = [self._degree(wanted, tuples, themes) for tuples, themes in zip(rows, of, strict=True)]
            batch = batch.append_column(name, pa.array(degrees, pa.float64()))
        true, unknown = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        best = np.zeros(len(rows))
        for alternative in self.parts.alternatives:
            holds, fits = columns.judged(alternative.rest, batch)
            fails = columns.mask(push_not_inwards(alternative.rest, negated=True), batch)
            if alternative.thematic is not None:
                for n in np.flatnonzero(~fails).tolist():
                    degree = self._degree(alternative.thematic, rows[n], of[n])
                    reached = degree is not None and alternative.thematic.reached(degree)
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
        for alternative, grade in zip(self.parts.alternatives, self._grades, strict=True):
            holds = evaluate.truth(alternative.rest, event)
            fits = grade(event)
            if alternative.thematic is not None and holds is not False:
                degree = self._degree(alternative.thematic, tuples, themes)
                fits = min(fits, degree or 0.0)
                if degree is None or not alternative.thematic.reached(degree):
                    holds = None if degree is None else False
            true |= holds is True
            unknown |= holds is None
            best = max(best, fits)
        return (True if true else None if unknown else False), best

    def _read(self, event: Mapping[str, Any]) -> tuple[list[Tuple], frozenset[str], Mapping[str, Any]]:
        """Return an event's tuples, its tags with its service's, and the event with the degrees of lone predicates."""
        tuples, themes = self._tuples(event), self._meaning.themes | thematic.themes_of(event)
        if not self.parts.lone:
            return tuples, themes, event
        degrees = {name: self._degree(wanted, tuples, themes) for name, wanted in self.parts.lone.items()}
        return tuples, themes, {**event, **degrees}

    def _degree(self, wanted: Thematic, tuples: list[Tuple], themes: frozenset[str]) -> float | None:
        """Return the degree of the predicates with ~; None if the event lacks a field that is named without ~."""
        named = {predicate.attribute for predicate in wanted.predicates if not predicate.soft_attribute}
        if not named <= {attribute for attribute, _ in tuples}:
            return None
        return thematic.degree(self._meaning.semantics, wanted, tuples, themes, self._rivals)
