"""Some filters of a table, and which records they want: the same question at both ends of a link."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import orjson

from tidegate.errors import TidegateError
from tidegate.filters import Filter
from tidegate.matching import Matcher
from tidegate.model import Schema


class Sieve:
    """Says which records somebody wants; one thread at a time asks it.

    >>> sieve = Sieve(Schema({"speed": "float64"}))
    >>> sieve.want({7: Filter("speed > 60")})
    >>> sieve.wanted([b'{"speed":61}', b'{"speed":59}', b'{"speed":62}'])
    [0, 2]
    """

    def __init__(self, schema: Schema, hidden: frozenset[str] = frozenset()) -> None:
        """`hidden` is taken off before the filters are asked: they can't tell of it."""
        self.schema, self._hidden = schema, hidden
        self._entries: dict[int, Filter] = {}
        self._made: Matcher | None = None
        self._blind: set[int] = set()
        """Entries that can't be evaluated here: while there are any, everything is wanted."""

    @property
    def _matcher(self) -> Matcher:
        """Made in the thread that asks: the first of a process loads what it has compiled, or compiles it."""
        if self._made is None:
            self._made = Matcher(self.schema)
        return self._made

    @property
    def is_blind(self) -> bool:
        """Whether it can't tell what is wanted: then it is everything."""
        return bool(self._blind)

    def want(self, entries: Mapping[int, Filter]) -> None:
        """Look for these: what is new is put before what is gone is dropped."""
        self.change(
            {number: each for number, each in entries.items() if self._entries.get(number) is not each},
            self._entries.keys() - entries.keys(),
        )

    def change(self, add: Mapping[int, Filter], remove: Collection[int]) -> None:
        """Look for some more and some less."""
        for number, each in add.items():
            self._put(number, each)
        for number in remove:
            self._blind.discard(number)
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
            self._blind.discard(number)
        except TidegateError:  # by meaning, or of another schema
            self._blind.add(number)

    def wanted(self, records: Sequence[bytes]) -> Sequence[int]:
        """Which of some records are wanted, by their place among them."""
        if self._blind:
            return range(len(records))
        events = [orjson.loads(record) for record in records]
        if self._hidden:
            events = [{k: v for k, v in each.items() if k not in self._hidden} for each in events]
        return sorted(set(self._matcher.match(events).pairs()[0].tolist()))

    def close(self) -> None:
        """End what it has running."""
        if self._made is not None:
            self._made.close()
