"""Compiles filters that differ only in their values without parsing them again.

Thousands of subscribers use one text with different numbers in it:

    speed > 60 AND vid = 'B17'
    speed > 85 AND vid = 'C2'       both have the template   speed > # AND vid = #

The first is parsed, typed and compiled, and its template is kept with what each value becomes. Of the next ones only
the values are read. A text that is not as plain as the first, or that might be refused, is parsed as usual.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tidegate.filters import Filter
from tidegate.filters.nodes import And, Between, Compare, Literal
from tidegate.filters.satisfiable import constraint_sets
from tidegate.filters.sets import Domain, domain_of
from tidegate.matching.rows import INT, STRING, TIME, Axes, CompiledFilter, Fact, allows, compile_plain
from tidegate.model import timestamps
from tidegate.model.schema import Schema
from tidegate.model.types import Scalar

MAX_TEMPLATES = 1_000
"""Number of cached templates; if there are more, the texts have little in common."""

_VALUE = re.compile(r"((?<!')'[^'\x00-\x1f]*'(?!')|(?<![\w.%\"'])-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?![\w.]))")
_PLAIN = frozenset({"float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "string", "timestamp"})


@dataclass(frozen=True, slots=True)
class _Slot:
    """A predicate of a template, without its values."""

    axis: int
    kind: int
    relation: str
    places: tuple[int, ...]
    """Indices of its values among the values of the text."""
    classes: tuple[type, ...]
    domain: Domain

    def read(self, values: list[str], n: int) -> Any:
        """Return value `n` as the parser would read it; None if it has another class than in the first text."""
        text = values[self.places[n]]
        expected = self.classes[n]
        quoted = text[0] == "'"
        if quoted or self.kind in (STRING, TIME):
            if not quoted or self.kind not in (STRING, TIME):
                return None
            return text[1:-1] if self.kind == STRING else timestamps.from_text(text[1:-1])
        if "." in text:
            return float(text) if expected is float else None
        if expected is not int:
            return None
        value = int(text)
        return value if self.kind != INT or self.domain.holds(value) else None


class Templates:
    """The templates of the texts that one matcher has parsed. Thread-safe."""

    def __init__(self, axes: Axes, schema: Schema | None) -> None:
        self._axes = axes
        self._constraints = {} if schema is None or not schema.constraints else constraint_sets(schema)
        self._slots_by_template: dict[str, tuple[_Slot, ...] | None] = {}
        """Slots by template; None if the filter is not plain (see `rows.compile_plain`).

        A dict that is cleared when full, not a cache from a library: any thread reads it without a lock, and a cache
        would take a lock for each filter that is added.
        """

    def compile(self, text: str) -> CompiledFilter | None:
        """Compile a text whose template is known; None if the text must be parsed."""
        pieces = _VALUE.split(text)
        slots = self._slots_by_template.get("#".join(pieces[::2]))
        if slots is None or "#" in text:
            return None
        values = pieces[1::2]
        facts: list[Fact] = []
        for slot in slots:
            first = slot.read(values, 0)
            last = slot.read(values, 1) if len(slot.places) > 1 else None
            if first is None or (last is None and len(slot.places) > 1):
                return None
            facts.append((slot.axis, slot.kind, slot.relation, first, last))
        compiled = compile_plain(facts)
        return compiled if compiled is not None and self._is_satisfiable(compiled) else None

    def learn(self, filter_: Filter) -> None:
        """Store the template of a filter that was parsed."""
        text = filter_.text
        template = "#".join(_VALUE.split(text)[::2])
        if "#" in text or template in self._slots_by_template or filter_.params or filter_.like_star:
            return
        if len(self._slots_by_template) >= MAX_TEMPLATES:
            self._slots_by_template.clear()
        self._slots_by_template[template] = self._slots(filter_)

    def _slots(self, filter_: Filter) -> tuple[_Slot, ...] | None:
        """Return what each value becomes; None if a value does not belong to a plain predicate."""
        places = {value.start(): n for n, value in enumerate(_VALUE.finditer(filter_.text))}
        root = filter_.pushed
        slots = []
        used_places: list[int] = []
        for term in root.terms if isinstance(root, And) else (root,):
            if not isinstance(term, Between | Compare) or (isinstance(term, Between) and term.negated):
                return None
            literals = (term.low, term.high) if isinstance(term, Between) else (term.other,)
            if not isinstance(term.path.type, Scalar) or term.path.type.name not in _PLAIN:
                return None
            at = [places.get(literal.span[0], -1) for literal in literals if isinstance(literal, Literal)]
            if len(at) < len(literals) or -1 in at:
                return None
            axis, kind = self._axes.number(term.path)
            relation = "BETWEEN" if isinstance(term, Between) else term.relation
            classes = tuple(type(literal.value) for literal in literals)  # type: ignore[union-attr]
            slots.append(_Slot(axis, kind, relation, tuple(at), classes, domain_of(term.path.type)))
            used_places += at
        return tuple(slots) if sorted(used_places) == sorted(places.values()) else None

    def _is_satisfiable(self, compiled: CompiledFilter) -> bool:
        """Return True if the schema's constraints allow some value of every span."""
        if not self._constraints:
            return True
        spans = {axis: (kind, low, high) for axis, kind, low, high in compiled.rows[0].spans}
        for path, (allowed, _) in self._constraints.items():
            span = spans.get(self._axes.number(path)[0])
            if span is not None and not allows(allowed, *span):
                return False
        return True
