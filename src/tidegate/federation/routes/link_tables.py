"""The routing tables of one link: per service, the filters requested in each direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.federation.routes.adaptive import Adaptive, AdaptiveSettings
from tidegate.federation.routes.messages import Path, RouteTable, TableState
from tidegate.federation.routes.table import Incoming, Outgoing
from tidegate.filters import Filter


class LinkTables:
    """All tables of the link to one neighbour.

    *Requested* filters are those that we have sent to the neighbour, so that it forwards events to us. *Routes* are the
    filters that the neighbour has sent to us. Both are kept while the link is down.
    """

    def __init__(self, adaptive: AdaptiveSettings | None) -> None:
        """`adaptive` are the settings of the filter policies. None: every event is filtered."""
        self.is_open = False
        """True once the neighbour has sent `hello` in this session. Before that nothing but `hello` is sent to it."""
        self.outgoing: dict[str, Outgoing] = {}
        self.incoming: dict[str, Incoming] = {}
        self.sent_paths: tuple[Path, ...] = ()
        """The paths that were last announced to the neighbour."""
        self._adaptive = adaptive
        self._policies: dict[str, Adaptive] = {}

    def close(self) -> None:
        """Mark the link as down, or as up again in a new session: unanswered questions of the old one are void."""
        self.is_open = False
        for incoming in self.incoming.values():
            incoming.is_asking = False
        for outgoing in self.outgoing.values():
            outgoing.theirs = None

    # What the neighbour has requested from us -------------------------------------

    def routes(self, service: str) -> dict[int, Filter]:
        """Return the filters that the neighbour has requested for a service, by entry number."""
        incoming = self.incoming.get(service)
        return {} if incoming is None else {number: entry.filter for number, entry in incoming.entries.items()}

    def is_wanted(self, service: str) -> bool:
        """True if the neighbour has requested events of a service."""
        return service in self.incoming and bool(self.incoming[service].entries)

    def wanted_services(self) -> list[str]:
        """Return the services that the neighbour has requested events of."""
        return [service for service, incoming in self.incoming.items() if incoming.entries]

    def forwards(self, service: str, event: Mapping[str, Any]) -> bool:
        """Decide whether an event is forwarded to the neighbour, and report the cost of matching to the policy."""
        policy, routes = self.filter_policy(service), self.routes(service).values()
        if policy is None:
            return any(may_match(filter_, event) for filter_ in routes)
        if not policy.matches_next():
            return policy.decide(None)
        evaluated = next((n for n, filter_ in enumerate(routes, 1) if may_match(filter_, event)), 0)
        return policy.decide(bool(evaluated), (evaluated or len(routes)) * policy.settings.asking_s)

    def table(self, service: str) -> RouteTable:
        """Return the whole table that the neighbour has sent for a service, empty if there is none."""
        incoming = self.incoming.get(service, Incoming())
        return RouteTable(service, incoming.state, tuple(incoming.entries.values()))

    def tables(self) -> list[RouteTable]:
        """Return all tables that the neighbour has sent."""
        return [self.table(service) for service in self.incoming]

    def table_sizes(self) -> dict[str, tuple[int, int]]:
        """Return, by service, the number of filters in the neighbour's table and their characters."""
        return {service: (len(incoming.entries), incoming.text_length) for service, incoming in self.incoming.items()}

    def states(self) -> dict[str, TableState]:
        """Return, by service, the version and digest of the neighbour's table as we have it."""
        return {service: incoming.state for service, incoming in self.incoming.items()}

    def filter_policy(self, service: str) -> Adaptive | None:
        """Return the policy that decides whether events of a service are filtered before they are forwarded.

        None if all are filtered, or if the neighbour has requested none. A caller that matches events by other means
        than `Broker.towards` asks the policy first and reports the cost of matching to it.
        """
        if self._adaptive is None or not self.is_wanted(service):
            return None
        if service not in self._policies:
            self._policies[service] = Adaptive(self._adaptive)
        return self._policies[service]

    def filter_policies(self) -> dict[str, Adaptive]:
        """Return, by service, every policy that was used since the link was added."""
        return dict(self._policies)

    # What we have requested from the neighbour ------------------------------------

    def requested(self, service: str) -> dict[int, Filter]:
        """Return the filters that we request from the neighbour, by entry number, also while the link is down."""
        outgoing = self.outgoing.get(service)
        return {} if outgoing is None else {number: entry.filter for number, entry in outgoing.entries.items()}

    def has_requested(self, service: str) -> bool:
        """True if we request any event of a service from the neighbour, or are about to."""
        outgoing = self.outgoing.get(service)
        return outgoing is not None and (outgoing.is_behind or bool(outgoing.entries))

    def requested_version(self, service: str) -> int:
        """Return the version of the table that we request; it differs whenever the filters differ."""
        return self.outgoing[service].state.version

    # Synchronization ---------------------------------------------------------------

    def is_in_sync(self, service: str) -> bool:
        """True if, in this session, all filters of a service were sent and no step of the neighbour's is missing."""
        if not self.is_open:
            return False
        incoming, outgoing = self.incoming.get(service), self.outgoing.get(service)
        return not (incoming is not None and incoming.is_asking) and not (outgoing is not None and outgoing.is_behind)

    def has_answered_hello(self) -> bool:
        """True if, in this session, the neighbour has sent `hello` and was sent everything that it lacked."""
        return self.is_open and all(outgoing.theirs is None for outgoing in self.outgoing.values())


def may_match(filter_: Filter, event: Mapping[str, Any]) -> bool:
    """True if an event matches, or if this broker can't tell: a filter with ~ needs a semantic space."""
    return filter_.tree.is_semantic or filter_.matches(event)
