"""The output streams that a hub serves: their schemas, and what evaluates filters with ~ over them."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.delivery.encoding import Encoding
from tidegate.errors import NotRegistered
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.model import Schema
from tidegate.subscriptions import SubscriptionRecord, compiled


class Outputs:
    """The schema and the semantics of each service that is served."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}
        self._meanings: dict[str, Meaning] = {}

    def __contains__(self, service: str) -> bool:
        return service in self._schemas

    def replace(self, schemas: Mapping[str, Schema], meanings: Mapping[str, Meaning]) -> list[str]:
        """Serve these services, and return the names of those that were served and have changed or are gone."""
        changed = [
            name
            for name, schema in self._schemas.items()
            if schemas.get(name) != schema or meanings.get(name) != self._meanings.get(name)
        ]
        self._schemas, self._meanings = dict(schemas), dict(meanings)
        return changed

    def schema(self, service: str) -> Schema:
        """Return the schema of a service. Raises `NotRegistered`, without a hint: the caller may not see others."""
        schema = self._schemas.get(service)
        if schema is None:
            raise NotRegistered(f"no service {service!r}")
        return schema

    def meaning(self, service: str) -> Meaning | None:
        """Return what evaluates filters with ~ over a service; None if it has no semantics."""
        return self._meanings.get(service)

    def filter_of(self, record: SubscriptionRecord, encoding: Encoding) -> Filter | None:
        """Return the filter of a durable subscription; None matches everything.

        A filter with ~ does not see the attributes that `encoding` hides. Raises `FilterError` if it does not fit the
        schema, and `NotRegistered`.
        """
        return compiled(record, self.schema(record.service), self.meaning(record.service), encoding.hidden)

    def recompiled(self, filter_: Filter, service: str, encoding: Encoding) -> Filter:
        """Return a filter with the current schema of a service. Raises as `filter_of` does."""
        schema = self.schema(service)
        visible = schema.without(encoding.hidden) if filter_.tree.is_semantic else schema
        meaning = self.meaning(service)
        return Filter(filter_.text, visible, filter_.params, like_star=filter_.like_star, semantics=meaning)
