"""Sends the messages of the broker's routing over the links, and finishes large changes in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidegate.errors import LinkRefused
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.routes import LinkRefusal, Sent
from tidegate.federation.routes.messages import to_json


class Routing:
    """Connects `Broker`, which does no I/O, with the sessions. Used on the event loop only."""

    def __init__(self, context: LinkContext) -> None:
        self._context, self._broker = context, context.broker
        self._working: asyncio.Task[None] | None = None
        """Finishes large changes of tables; None while nothing is pending."""

    def send(self, messages: Iterable[Sent]) -> None:
        """Send messages to the neighbours whose links are up, and start pending work in the background."""
        for to, message in messages:
            neighbour = self._context.neighbours.get(to)
            if neighbour is None or neighbour.session is None:
                continue
            neighbour.session.send(to_json(message))
            if isinstance(message, LinkRefusal):
                neighbour.session.end(str(LinkRefused(message.loop)))
        runtime = self._context.runtime
        if self._broker.pending and self._working is None and not runtime.is_closed:
            self._working = runtime.spawn(self._work())

    async def _work(self) -> None:
        """Take pending steps one at a time, so that other work of the loop runs in between."""
        try:
            while self._broker.pending:
                await asyncio.sleep(0)
                self.send(self._broker.work())
                self._send_all_resumes()
        finally:
            self._working = None
        self._send_all_resumes()  # another change may have finished the work
        for service in list(self._context.remotes):
            self.reset_unrequested(service)

    def _send_all_resumes(self) -> None:
        for neighbour in self._context.neighbours.values():
            self.send_resume(neighbour)

    def send_resume(self, neighbour: Neighbour) -> None:
        """Send `resume` once per session, after the neighbour was sent all requests that it lacked.

        It says where each mirror continues. The neighbour then forwards exactly the requested events from there on.
        """
        session, link = neighbour.session, self._broker.links.get(neighbour.name)
        is_ready = link is not None and link.has_answered_hello()
        if session is not None and not neighbour.has_sent_resume and is_ready:
            neighbour.has_sent_resume = True
            session.send(neighbour.resume(self.requested_services(neighbour)))

    def requested_services(self, neighbour: Neighbour) -> list[str]:
        """Return the services that we request from a neighbour, of those that it offers."""
        link = self._broker.link(neighbour.name)
        return [service for service in neighbour.offers if link.has_requested(service)]

    def has_requested(self, service: str, neighbour: str) -> bool:
        """True if we request any event of a service from a neighbour."""
        return self._broker.link(neighbour).has_requested(service)

    def is_in_sync(self, service: str, neighbour: str) -> bool:
        """True if, in this session, both ends of a link have the other's current table of a service."""
        link = self._broker.links.get(neighbour)
        return link is not None and link.is_in_sync(service)

    def reset_unrequested(self, service: str) -> None:
        """If no filter requests a service any more, let its mirror continue with new events when one does again."""
        neighbour = self._context.via(service)
        link = None if neighbour is None else self._broker.links.get(neighbour.name)
        if neighbour is not None and link is not None and not link.has_requested(service):
            neighbour.restart_mirror(service)
