"""Dispatches the messages of a neighbour to the part of the links that handles them.

taken            the forwarder of the service
offers           the catalog
resume           forwarding starts
history          a page is read and sent in the background
hello, update,   the routing (`federation.routes`)
table, reach, refusal
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from tidegate.errors import FederationError, LinkRefused
from tidegate.federation.link.bounds import NeighbourFault, check_message, check_relayed, check_tables
from tidegate.federation.link.catalog import Catalog
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.forwarder import ResumePoint
from tidegate.federation.link.forwarding import Forwarding
from tidegate.federation.link.history_exchange import HistoryExchange
from tidegate.federation.link.mirrors import Mirrors
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.routing import Routing
from tidegate.federation.routes import Hello, Message, RouteTable, Update
from tidegate.federation.routes.messages import from_json
from tidegate.model import Schema, ServiceName

MAX_INLINE_FILTERS = 50
"""Filters that are parsed on the event loop, at about 0.1 ms each. Larger messages are parsed in a thread."""
MAX_INLINE_BYTES = 16 * 1024
"""The same in characters of filters."""


class MessageHandler:
    """Handles everything that a neighbour sends in a session. Runs on the event loop, one message after the other."""

    def __init__(
        self,
        context: LinkContext,
        routing: Routing,
        catalog: Catalog,
        forwarding: Forwarding,
        mirrors: Mirrors,
        exchange: HistoryExchange,
    ) -> None:
        self._context, self._routing, self._catalog = context, routing, catalog
        self._forwarding, self._mirrors, self._history = forwarding, mirrors, exchange

    async def on_message(self, neighbour: Neighbour, message: dict[str, Any]) -> None:
        """Handle a control message. Raises `NeighbourFault` if it is malformed or exceeds a bound."""
        try:
            check_message(message, self._context.settings.bounds)
            await self._dispatch(neighbour, message)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise NeighbourFault(f"expected a message of a broker, not {message!r:.120}: {exc!r}") from exc
        except NeighbourFault:
            raise
        except FederationError as exc:
            raise NeighbourFault(str(exc)) from exc

    async def on_events(self, neighbour: Neighbour, head: dict[str, Any], records: list[bytes]) -> None:
        """Handle forwarded events, or a page of history. Raises a `FederationError` if they are malformed."""
        try:
            if "history" in head:
                await self._history.receive_page(neighbour, head, records)
            else:
                await self._mirrors.receive(neighbour, head, records)
        except (TypeError, ValueError) as exc:
            raise FederationError(f"expected events of {head['service']!r:.80}, not {head!r:.120}: {exc!r}") from exc

    def on_heartbeat(self, neighbour: Neighbour) -> None:
        """Send a `hello`. Its answer repeats messages that were lost."""
        if neighbour.name in self._context.broker.links:
            self._routing.send(self._context.broker.hello(neighbour.name))

    async def _dispatch(self, neighbour: Neighbour, message: dict[str, Any]) -> None:
        match message["type"]:
            case "taken":
                forwarder = neighbour.forwarders.get(str(message.get("service")))
                if forwarder is not None:
                    forwarder.confirm(int(message["events"]), int(message["dropped"]))
            case "offers":
                await self._catalog.accept(neighbour, message["services"])
                neighbour.unsaved["offers", ""] = orjson.dumps(message["services"]).decode()
                await self._catalog.publish()
            case "resume":
                neighbour.resume_points = {
                    service: ResumePoint(point["cursor"], point["marks"])
                    for service, point in message["services"].items()
                }
                neighbour.has_resumed = True
                self._forwarding.update_all(neighbour)
            case "history":
                self._history.receive_request(neighbour, message)
            case _:
                route_message = await self._parse(neighbour, message)
                self._check_tables(neighbour, route_message)
                self._receive_route_message(neighbour, route_message)

    async def _parse(self, neighbour: Neighbour, message: Mapping[str, Any]) -> Message:
        """Parse a message of `federation.routes`, in a thread if it is large."""
        schema = self._forwarding.schema(neighbour, str(message.get("service")))
        entries = message.get("entries", message.get("add", ()))
        is_large = (
            len(entries) > MAX_INLINE_FILTERS or sum(len(entry["filter"]) for entry in entries) > MAX_INLINE_BYTES
        )
        if is_large:
            return await self._context.runtime.in_thread(partial(_parse_and_prepare, message, schema))
        return from_json(message, lambda _: schema)

    def _check_tables(self, neighbour: Neighbour, message: Message) -> None:
        """Raise `NeighbourFault` if the neighbour's tables would exceed their bounds after this message."""
        link, bounds = self._context.broker.links.get(neighbour.name), self._context.settings.bounds
        if not isinstance(message, Update | RouteTable) or link is None:
            return
        sizes = link.table_sizes()
        add = message.add if isinstance(message, Update) else message.entries
        filters, size = sizes.get(message.service, (0, 0)) if isinstance(message, Update) else (0, 0)
        sizes[message.service] = filters + len(add), size + sum(len(entry.text) for entry in add)
        check_tables(sizes.values(), bounds)
        own = self._context.name
        check_relayed([size for service, size in sizes.items() if ServiceName.parse(service).origin != own], bounds)

    def _receive_route_message(self, neighbour: Neighbour, message: Message) -> None:
        session, broker = neighbour.session, self._context.broker
        if neighbour.name not in broker.links:
            return
        self._routing.send(broker.receive(neighbour.name, message))
        if neighbour.name in broker.refused:
            if session is not None:
                session.end(str(LinkRefused(broker.refused[neighbour.name])))
            return
        if isinstance(message, Hello):
            self._routing.send_resume(neighbour)
        if isinstance(message, Update | RouteTable):
            neighbour.stale_routes.add(message.service)
            self._routing.reset_unrequested(message.service)
            self._forwarding.update(neighbour, message.service, message if isinstance(message, Update) else None)


def _parse_and_prepare(message: Mapping[str, Any], schema: Schema | None) -> Message:
    """Parse a message and compute what the routing will need of each filter, so that the event loop need not."""
    parsed = from_json(message, lambda _: schema)
    if isinstance(parsed, Update | RouteTable):
        for entry in parsed.add if isinstance(parsed, Update) else parsed.entries:
            _ = hash(entry.filter), [conjunct.necessary for conjunct in entry.filter.normal.conjuncts]
    return parsed
