"""The routing of one broker: takes changes and messages, returns the messages to send.

Links form a tree, so a filter that is requested over one link is requested over all others, as far as the strategy
needs it. Every change adds entries before it removes others, in each table in one step: no event meets a table that
lacks a filter that is still needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidegate.errors import FederationError, LinkRefused, did_you_mean
from tidegate.federation.routes.adaptive import AdaptiveSettings
from tidegate.federation.routes.link_tables import LinkTables
from tidegate.federation.routes.messages import (
    Hello,
    LinkRefusal,
    Message,
    Path,
    Reach,
    RouteTable,
    Sent,
    TableState,
    Update,
)
from tidegate.federation.routes.needed_filters import NeededFilters
from tidegate.federation.routes.requests import Requests
from tidegate.federation.routes.strategies import STRATEGIES
from tidegate.federation.routes.table import Incoming
from tidegate.federation.routes.topology import PathTable
from tidegate.filters import Filter


class Broker:
    """The routes of one broker. Not thread-safe: one thread or event loop owns it.

    >>> here, there = Broker("here"), Broker("there")
    >>> for to, hello in here.connect("there") + there.connect("here"):
    ...     _ = (here if to == "here" else there).receive("there" if to == "here" else "here", hello)
    >>> (request,) = here.subscribe("gps", "s1", Filter("speed > 60"))
    >>> here.subscribe("gps", "s2", Filter("speed > 80"))  # covered: nothing to send
    []
    >>> there.receive("here", request.message)
    []
    >>> there.towards("gps", {"speed": 70})
    ['here']
    """

    def __init__(
        self,
        name: str,
        strategy: str = "covering",
        leads: Callable[[str, str], bool] = lambda _, __: True,
        adaptive: AdaptiveSettings | None = None,
    ) -> None:
        """`leads(service, neighbour)` says whether events of a service may come from a neighbour.

        A service is requested only from neighbours that lead to it; call `reconsider` when an answer changes.
        `adaptive` says when a link forwards events unfiltered. None: never. Raises a `FederationError` if the strategy
        is unknown.
        """
        if strategy not in STRATEGIES:
            hint = did_you_mean(strategy, STRATEGIES) or f"; expected one of {', '.join(STRATEGIES)}"
            raise FederationError(f"unknown strategy {strategy!r}{hint}")
        self.name, self.strategy, self.adaptive = name, strategy, adaptive
        self.refused: dict[str, Path] = {}
        """Links that were given up, with the loop that each would have closed."""
        self._needed = NeededFilters()
        self._links: dict[str, LinkTables] = {}
        self._paths = PathTable(name)
        self._requests = Requests(strategy, leads, self._needed, self._links)

    # Own subscriptions -----------------------------------------------------------

    def subscribe(self, service: str, subscription: str, filter_: Filter) -> list[Sent]:
        """Add a subscription. Raises a `FederationError` if its id is in use."""
        self._needed.require_absent(service, subscription)
        return self.set_all(service, {subscription: filter_})

    def change(self, service: str, subscription: str, filter_: Filter) -> list[Sent]:
        """Replace the filter of a subscription. Events that match both filters are never missed."""
        self._needed.require_present(service, subscription)
        return self.set_all(service, {subscription: filter_})

    def unsubscribe(self, service: str, subscription: str) -> list[Sent]:
        """Remove a subscription. Raises a `FederationError` if there is none."""
        self._needed.require_present(service, subscription)
        return self.set_all(service, {subscription: None})

    def set_all(self, service: str, filters: Mapping[str, Filter | None]) -> list[Sent]:
        """Add, change and, by None, remove many subscriptions in one step."""
        put, drop = self._needed.set_local(service, filters)
        return self._requests.change(service, put, drop, None)

    def local(self, service: str) -> dict[str, Filter]:
        """Return this broker's own subscriptions to a service."""
        return self._needed.local(service)

    # Links -----------------------------------------------------------------------

    @property
    def links(self) -> dict[str, LinkTables]:
        """A copy of all links by the name of the neighbour, whether they are up or down."""
        return dict(self._links)

    def link(self, neighbour: str) -> LinkTables:
        """Return the tables of a link. Raises a `FederationError` if there is no such link."""
        link = self._links.get(neighbour)
        if link is None:
            raise FederationError(f"{self.name} has no link to {neighbour!r}{did_you_mean(neighbour, self._links)}")
        return link

    def paths(self, neighbour: str) -> tuple[Path, ...]:
        """Return the paths to the brokers that are reached over a link."""
        return self._paths.via(neighbour)

    def check(self, neighbour: str) -> None:
        """Raise `LinkRefused` if a new link to this broker would close a loop."""
        loop = self._paths.loop_by_new_link(neighbour)
        if neighbour == self.name:
            raise LinkRefused((self.name, self.name))
        if neighbour not in self._links and loop is not None:
            raise LinkRefused(loop, loop[-2], is_up=self._links[loop[-2]].is_open)

    def connect(self, neighbour: str) -> list[Sent]:
        """Start a session of a new or known link. Raises `LinkRefused` if a new one would close a loop."""
        self.check(neighbour)
        self.refused.pop(neighbour, None)
        if neighbour not in self._links:
            self._requests.add_link(neighbour, LinkTables(self.adaptive))
        self._links[neighbour].close()
        return self.hello(neighbour)

    def hello(self, neighbour: str) -> list[Sent]:
        """Return a `hello` with the states of our tables; the neighbour answers with the steps that are missing.

        It starts every session and is also sent as a heartbeat.
        """
        link = self.link(neighbour)
        link.sent_paths = self._paths.announcement(neighbour)
        return [Sent(neighbour, Hello(link.states(), link.sent_paths))]

    def disconnect(self, neighbour: str) -> None:
        """End the session of a link. Both ends keep their tables and continue with them in the next session."""
        self.link(neighbour).close()

    def forget(self, neighbour: str) -> list[Sent]:
        """Remove a link for good, with every filter that was needed for its neighbour."""
        link = self.link(neighbour)
        del self._links[neighbour]
        self._paths.forget(neighbour)
        sent = self._announce_paths()
        for service, incoming in link.incoming.items():
            sent += self._requests.change(service, {}, list(incoming.needs.values()), neighbour)
        return sent

    def restore(self, neighbour: str, tables: Iterable[RouteTable]) -> None:
        """Load the tables that a neighbour had sent before this broker restarted. Call it before `connect`."""
        if neighbour not in self._links:
            self._requests.add_link(neighbour, LinkTables(self.adaptive))
        for table in tables:
            incoming = self._links[neighbour].incoming.setdefault(table.service, Incoming())
            self._apply(incoming, neighbour, Update(table.service, table.state, *incoming.differences(table)))

    def reconsider(self, service: str) -> list[Sent]:
        """Ask `leads` again for a service, and move its requests to the neighbours that lead to it now."""
        return self._requests.reconsider(service)

    # Messages --------------------------------------------------------------------

    def receive(self, neighbour: str, message: Message) -> list[Sent]:
        """Process a message of a neighbour. Messages on a link that was given up are ignored."""
        if neighbour in self.refused:
            return []
        link = self.link(neighbour)
        match message:
            case Hello(tables, paths):
                return self._receive_hello(link, neighbour, tables, paths)
            case Update():
                return self._receive_update(link, neighbour, message)
            case RouteTable():
                incoming = link.incoming.setdefault(message.service, Incoming())
                incoming.is_asking = False
                add, remove = incoming.differences(message)
                return self._apply(incoming, neighbour, Update(message.service, message.state, add, remove))
            case Reach(paths):
                return self._learn_paths(neighbour, paths)
            case LinkRefusal(loop):
                self.refused[neighbour] = loop
                return self.forget(neighbour)

    def _receive_hello(
        self, link: LinkTables, neighbour: str, tables: Mapping[str, TableState], paths: tuple[Path, ...]
    ) -> list[Sent]:
        is_first, link.is_open = not link.is_open, True
        sent = self._learn_paths(neighbour, paths)
        if neighbour in self._links:  # else the paths have shown a loop, and the link was given up
            sent += self._requests.answer_hello(neighbour, tables, is_first=is_first)
        return sent

    def _receive_update(self, link: LinkTables, neighbour: str, update: Update) -> list[Sent]:
        """Apply the next step of a neighbour's table. If steps are missing, ask for them once with a `hello`."""
        incoming = link.incoming.setdefault(update.service, Incoming())
        if incoming.is_next(update):
            incoming.is_asking = False
            return self._apply(incoming, neighbour, update)
        if incoming.is_asking or update.state.version <= incoming.state.version:
            return []
        incoming.is_asking = True
        return self.hello(neighbour)

    def _apply(self, incoming: Incoming, neighbour: str, update: Update) -> list[Sent]:
        """Apply a step to a neighbour's table, and request what follows from it over the other links."""
        drop = [incoming.needs.pop(number) for number in update.remove]
        for number in update.remove:
            incoming.text_length -= len(incoming.entries.pop(number).text)
        incoming.text_length += sum(len(entry.text) for entry in update.add)
        put = {}
        for entry in update.add:
            incoming.entries[entry.number] = entry
            incoming.needs[entry.number] = number = self._needed.next_number()
            put[number] = entry.filter
        incoming.state = update.state
        return self._requests.change(update.service, put, drop, neighbour)

    def _learn_paths(self, neighbour: str, paths: tuple[Path, ...]) -> list[Sent]:
        """Store the announced paths. If they show a loop that we must break, give up one of our links."""
        loop = self._paths.learn(neighbour, paths, self._links)
        if loop is None:
            return self._announce_paths()
        given_up, brokers = loop
        self.refused[given_up] = brokers
        return [Sent(given_up, LinkRefusal(brokers)), *self.forget(given_up)]

    def _announce_paths(self) -> list[Sent]:
        """Return a `reach` for every open link whose paths have changed."""
        sent = []
        for neighbour, link in self._links.items():
            paths = self._paths.announcement(neighbour)
            if link.is_open and paths != link.sent_paths:
                link.sent_paths = paths
                sent.append(Sent(neighbour, Reach(paths)))
        return sent

    # Work that is left -----------------------------------------------------------

    @property
    def pending(self) -> bool:
        """True if a large change is not yet fully applied: call `work` until it is."""
        return self._requests.pending

    def work(self) -> list[Sent]:
        """Do a bounded part of the pending change. Returns the messages to send. No event is missed meanwhile."""
        return self._requests.work()

    # Events ----------------------------------------------------------------------

    def towards(self, service: str, event: Mapping[str, Any], source: str | None = None) -> list[str]:
        """Return the neighbours that an event is forwarded to, never the one that it came from (`source`).

        Evaluates one filter after the other. For many events use a matcher over `LinkTables.routes`, as the forwarders
        of `federation.link` do.
        """
        floods = self._requests.floods
        return [
            name for name, link in self._links.items() if name != source and (floods or link.forwards(service, event))
        ]
