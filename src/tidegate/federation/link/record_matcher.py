"""Matches encoded records against the filters of a table. Both ends of a link use it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import orjson

from tidegate.errors import TidegateError
from tidegate.filters import Filter
from tidegate.matching import Matcher
from tidegate.model import Schema


class RecordMatcher:
    """Finds the records that match at least one filter. Not thread-safe, but threads may use it in turn.

    >>> matcher = RecordMatcher(Schema({"speed": "float64"}))
    >>> matcher.set_filters({7: Filter("speed > 60")})
    >>> matcher.match([b'{"speed":61}', b'{"speed":59}', b'{"speed":62}'])
    [0, 2]
    """

    def __init__(self, schema: Schema, hidden: frozenset[str] = frozenset()) -> None:
        """`hidden` are attributes that are removed before matching, so that filters reveal nothing about them."""
        self.schema, self._hidden = schema, hidden
        self._entries: dict[int, Filter] = {}
        self._created: Matcher | None = None
        self._not_evaluable: set[int] = set()
        """Entries that can't be evaluated here. While there are any, every record matches."""

    @property
    def _matcher(self) -> Matcher:
        """Created on first use, on the thread that matches: the first matcher of a process loads or compiles code."""
        if self._created is None:
            self._created = Matcher(self.schema)
        return self._created

    @property
    def matches_all(self) -> bool:
        """True if a filter can't be evaluated here, so that every record has to be taken as a match."""
        return bool(self._not_evaluable)

    def set_filters(self, entries: Mapping[int, Filter]) -> None:
        """Replace all filters. New ones are added before others are removed."""
        self.change(
            {number: filter_ for number, filter_ in entries.items() if self._entries.get(number) is not filter_},
            self._entries.keys() - entries.keys(),
        )

    def change(self, add: Mapping[int, Filter], remove: Collection[int]) -> None:
        """Add or replace filters by number, then remove others. Unknown numbers are ignored."""
        for number, filter_ in add.items():
            self._put(number, filter_)
        for number in remove:
            self._not_evaluable.discard(number)
            if str(number) in self._matcher:
                self._matcher.remove(str(number))
            self._entries.pop(number, None)
        self._entries.update(add)

    def _put(self, number: int, filter_: Filter) -> None:
        try:
            filter_.require_evaluable()
            if str(number) in self._matcher:
                self._matcher.replace(str(number), filter_)
            else:
                self._matcher.add(str(number), filter_)
            self._not_evaluable.discard(number)
        except TidegateError:  # a filter with ~, or one that does not fit the schema
            self._not_evaluable.add(number)

    def match(self, records: Sequence[bytes]) -> Sequence[int]:
        """Return the indices of the records that match a filter, in ascending order."""
        if self._not_evaluable:
            return range(len(records))
        events = [orjson.loads(record) for record in records]
        if self._hidden:
            events = [{name: event[name] for name in event if name not in self._hidden} for event in events]
        return sorted(set(self._matcher.match(events).pairs()[0].tolist()))

    def close(self) -> None:
        """Close the matcher. Nothing may be matched afterwards."""
        if self._created is not None:
            self._created.close()
