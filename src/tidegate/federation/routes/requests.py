"""What a broker requests from its neighbours: one outgoing table per link and service."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from tidegate.federation.routes.link_tables import LinkTables
from tidegate.federation.routes.messages import Sent, TableState, Update
from tidegate.federation.routes.needed_filters import NeededFilters
from tidegate.federation.routes.strategies import STRATEGIES
from tidegate.federation.routes.table import Outgoing
from tidegate.filters import Filter


class Requests:
    """Keeps the outgoing tables of all links up to date with the needed filters.

    Methods return the messages to send. Nothing is returned for a link whose neighbour has not sent `hello` yet: its
    table changes all the same, and the answer to `hello` brings the neighbour up to date.
    """

    def __init__(
        self,
        strategy: str,
        leads: Callable[[str, str], bool],
        needed: NeededFilters,
        links: dict[str, LinkTables],
    ) -> None:
        """`leads(service, neighbour)` says whether events of a service may come from a neighbour.

        `links` is the broker's own dictionary: both change it.
        """
        self._strategy, self._leads, self._needed, self._links = strategy, leads, needed, links
        self.floods = STRATEGIES[strategy](needed.next_number).floods
        """True if the strategy forwards every event without a request."""

    def add_link(self, neighbour: str, link: LinkTables) -> None:
        """Add a link, and create its outgoing tables with all filters that are needed elsewhere."""
        self._links[neighbour] = link
        incoming = (service for link in self._links.values() for service in link.incoming)
        for service in sorted({*self._needed.local_services(), *incoming}):
            self._table(neighbour, service)

    def change(self, service: str, put: Mapping[int, Filter], drop: Collection[int], source: str | None) -> list[Sent]:
        """Add and remove needed filters in the tables of all links but the one that they come from."""
        sent = []
        for neighbour in self._links:
            if neighbour == source:
                continue
            outgoing = self._table(neighbour, service)
            if outgoing.is_led:
                sent += self._messages(neighbour, outgoing, outgoing.change(put, drop))
        self._needed.apply(put, drop)
        return sent

    def reconsider(self, service: str) -> list[Sent]:
        """Ask `leads` again: request a service from the neighbours that lead to it now, and from no others."""
        sent = []
        for neighbour in self._links:
            outgoing = self._table(neighbour, service)
            leads = self._leads(service, neighbour)
            if outgoing.is_led == leads:
                continue
            outgoing.is_led = leads
            needed = self._needed_elsewhere(service, neighbour)
            update = outgoing.change(needed, ()) if leads else outgoing.change({}, list(needed))
            sent += self._messages(neighbour, outgoing, update)
        return sent

    def answer_hello(self, neighbour: str, tables: Mapping[str, TableState], *, is_first: bool) -> list[Sent]:
        """Return what brings a neighbour up to date that has these tables. `is_first`: its first in this session."""
        sent: list[Sent] = []
        for service in sorted(tables.keys() | self._links[neighbour].outgoing.keys()):
            outgoing = self._table(neighbour, service)
            theirs = tables.get(service, TableState())
            if outgoing.is_behind and (is_first or outgoing.theirs is not None):
                # The neighbour may have the complete table of our previous run: a partial one would replace it.
                outgoing.theirs = theirs
            else:
                sent += [Sent(neighbour, message) for message in outgoing.since(theirs)]
        return sent

    @property
    def pending(self) -> bool:
        """True if a table has more entries than necessary, or not yet all: `work` then has something to do."""
        return any(outgoing.pending for link in self._links.values() for outgoing in link.outgoing.values())

    def work(self) -> list[Sent]:
        """Take one pending step in one table."""
        for neighbour, link in self._links.items():
            for outgoing in link.outgoing.values():
                if outgoing.pending:
                    return self._messages(neighbour, outgoing, outgoing.work())
        return []

    def _messages(self, neighbour: str, outgoing: Outgoing, update: Update | None) -> list[Sent]:
        """Return what a neighbour is sent after its table has taken a step; `update` is that step, if it had any."""
        if not self._links[neighbour].is_open or (outgoing.theirs is not None and outgoing.is_behind):
            return []
        if outgoing.theirs is None:
            return [] if update is None else [Sent(neighbour, update)]
        theirs, outgoing.theirs = outgoing.theirs, None
        return [Sent(neighbour, message) for message in outgoing.since(theirs)]

    def _table(self, neighbour: str, service: str) -> Outgoing:
        """Return the table of a link; a new one starts with all filters that are needed elsewhere."""
        tables = self._links[neighbour].outgoing
        outgoing = tables.get(service)
        if outgoing is None:
            outgoing = tables[service] = Outgoing(service, STRATEGIES[self._strategy](self._needed.next_number))
            outgoing.is_led = self._leads(service, neighbour)
            if outgoing.is_led:
                outgoing.change(self._needed_elsewhere(service, neighbour), ())
        return outgoing

    def _needed_elsewhere(self, service: str, neighbour: str) -> dict[int, Filter]:
        """Return the filters that are needed by this broker or by any other neighbour."""
        return self._needed.select(self._numbers_elsewhere(service, neighbour))

    def _numbers_elsewhere(self, service: str, besides: str) -> Iterator[int]:
        yield from self._needed.local_numbers(service)
        for neighbour, link in self._links.items():
            if neighbour != besides and service in link.incoming:
                yield from link.incoming[service].needs.values()
