"""A schema's constraints as filters, and the violations of an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.errors import Violation
from tidegate.filters.filter import Filter
from tidegate.filters.nodes import paths, predicates
from tidegate.filters.satisfiable import constraint_queries
from tidegate.filters.values import raw_reader
from tidegate.model.events import show
from tidegate.model.schema import Schema


class Constraints:
    """What a schema demands of its attributes in addition to their types.

    A constraint is the filter `<attribute> <text>`. An event violates it unless the filter is true; unknown is a
    violation.

    >>> gps = Constraints(Schema({"speed": "float64"}, constraints={"speed": ">= 0"}))
    >>> [str(violation) for violation in gps.violations({"speed": -3.0})]
    ['speed: -3.0 violates speed >= 0']
    """

    def __init__(self, schema: Schema) -> None:
        # Check the filters against the schema without its constraints: a constraint must not contradict itself.
        plain = Schema(schema.root, terms=schema.terms, event_time=schema.event_time)
        texts = constraint_queries(schema)
        self.filters: Mapping[str, Filter] = {name: Filter(text, plain) for name, (text, _) in texts.items()}
        """The filter that each attribute must match, by attribute."""

    def violations(self, event: Mapping[str, Any]) -> Iterator[Violation]:
        """Yield a violation for each attribute whose constraint an event does not satisfy."""
        for name, filter_ in self.filters.items():
            if not filter_.matches(event):
                (path,) = {path for node in predicates(filter_.tree.root) for path in paths(node)}
                value = raw_reader(path)(event)
                shown = "a missing value" if value is None else show(value)
                yield Violation(name, f"{shown} violates {filter_.text}")
