"""Starts, changes and stops the forwarders of all links, by what each neighbour requests and may see."""

from __future__ import annotations

from functools import partial
from typing import Any

from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.forwarder import Forwarder, OutgoingBatch, Supply
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.session import Session
from tidegate.federation.routes import Update
from tidegate.model import Schema, ServiceName


class Forwarding:
    """One forwarder per neighbour and requested service. Used on the event loop only."""

    def __init__(self, context: LinkContext) -> None:
        self._context = context

    def supply(self, neighbour: Neighbour, service: str) -> Supply | None:
        """Return the stream of a service and what a neighbour sees of it. None: it may not have the service.

        The service is our own, or another broker's that we pass on; never one that the neighbour offers itself.
        """
        context, parsed = self._context, ServiceName.parse(service)
        if parsed.origin == context.name:
            return context.local.supply(neighbour.link, parsed.name)
        remote = context.remotes.get(service)
        if remote is None or remote.via == neighbour.name or not remote.onward:
            return None
        if not context.local.passes_on(neighbour.link, service):
            return None
        return Supply(service, service, remote.schema)

    def schema(self, neighbour: Neighbour, service: str) -> Schema | None:
        """Return the schema that types the filters that a neighbour requests. None: they stay untyped."""
        if ServiceName.parse(service).origin == self._context.name:
            supply = self.supply(neighbour, service)
            return None if supply is None else supply.schema
        remote = self._context.remotes.get(service)
        return None if remote is None else remote.schema

    def update_all(self, neighbour: Neighbour) -> None:
        """Forward exactly the services that a neighbour requests and may see. Does nothing before its `resume`."""
        link = self._context.broker.links.get(neighbour.name)
        if neighbour.session is None or not neighbour.has_resumed or link is None:
            return
        for service in {*neighbour.forwarders, *link.wanted_services()}:
            self.update(neighbour, service)

    def update(self, neighbour: Neighbour, service: str, step: Update | None = None) -> None:
        """Start, change or stop the forwarder of a service. `step` is the last change of the neighbour's table.

        With `step` only the difference is passed to the forwarder; without it the whole table.
        """
        session, link = neighbour.session, self._context.broker.links.get(neighbour.name)
        if session is None or not neighbour.has_resumed:
            return
        if link is None or not link.is_wanted(service):
            neighbour.stop(service)
            neighbour.unconfirmed_starts.pop(service, None)
            neighbour.resume_points.pop(service, None)
            return
        supply, forwarder, state = (
            self.supply(neighbour, service),
            neighbour.forwarders.get(service),
            link.states()[service],
        )
        if forwarder is None or forwarder.supply != supply:
            self._replace(neighbour, session, service, supply)
        elif step is None or step.state != state:
            forwarder.set_filters(link.routes(service), state)
        else:
            forwarder.change_filters({entry.number: entry.filter for entry in step.add}, step.remove, state)

    def _replace(self, neighbour: Neighbour, session: Session, service: str, supply: Supply | None) -> None:
        """Stop the forwarder of a service, if there is one, and start another where it ended."""
        rest = neighbour.stop(service)
        if supply is None:  # hidden for now: if the neighbour may see it again, it continues where it was
            if rest is not None and service not in neighbour.unconfirmed_starts:
                neighbour.resume_points[service] = rest
            return
        context, link = self._context, self._context.broker.link(neighbour.name)
        send = partial(context.runtime.call_from_thread, partial(self._send, neighbour, session, service))
        neighbour.forwarders[service] = Forwarder(
            context.log,
            supply,
            rest or neighbour.resume_point(service),
            link.routes(service),
            link.states()[service],
            send,
            context.settings,
            link.filter_policy(service),
            context.signer.records if supply.is_own else None,
        )

    def _send(self, neighbour: Neighbour, session: Session, service: str, batch: OutgoingBatch) -> None:
        """Send a batch of a forwarder, unless its session has ended meanwhile."""
        if neighbour.session is session:
            head: dict[str, Any] = {"service": service, "cursor": batch.cursor}
            session.send_events({**head, "coarse": True} if batch.is_coarse else head, batch.records)
