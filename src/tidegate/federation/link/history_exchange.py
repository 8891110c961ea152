"""Requests pages of history from neighbours, and answers their requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any

from tidegate.errors import FederationError, TidegateError
from tidegate.federation.link import history
from tidegate.federation.link.bounds import NeighbourFault
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.filters import filter_from_json, filter_to_json
from tidegate.federation.link.forwarder import Supply
from tidegate.federation.link.forwarding import Forwarding
from tidegate.federation.link.history import HistoryPage
from tidegate.federation.link.mirrors import UNWANTED_UNITS
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.offers import is_portable
from tidegate.federation.link.persistence import LinkStateStore
from tidegate.federation.link.relay import Answer, HistoryRelay
from tidegate.federation.link.routing import Routing
from tidegate.federation.link.session import Session
from tidegate.federation.link.wire import LinkClosed
from tidegate.filters import Filter
from tidegate.logs import Cursor

ANSWER_TIMEOUT_S = 30.0
"""How long a neighbour may take to answer with a page of history, or a forwarder to report its position."""
MAX_AWAITED_PAGES = 500
"""Pages that we await from one neighbour: fewer than it accepts."""


class HistoryExchange:
    """Reads other brokers' history page by page, and serves ours. Used on the event loop only.

    A request travels from broker to broker towards the origin, and the page travels back.
    """

    def __init__(self, context: LinkContext, routing: Routing, store: LinkStateStore, forwarding: Forwarding) -> None:
        self._context, self._routing, self._store, self._forwarding = context, routing, store, forwarding
        self._ids = count(1)
        self.relay = HistoryRelay(context, self._request_from_neighbour)

    # Our requests ------------------------------------------------------------------------

    async def read(self, service: str, filter_: Filter | None, start: Cursor, until: Cursor | None) -> HistoryPage:
        """Return a page of another broker's history from `start` on.

        Pass None as `until` for the first page, and `HistoryPage.until` of the first page for all others. Records that
        do not belong to the page, or lack a required signature, are replaced by gaps. Raises `LinkClosed` if no link
        leads to the service or no answer comes in time, and `FederationError` if the neighbour refuses or sends a
        malformed page.
        """
        context = self._context
        request: dict[str, Any] = {"service": service, "place": start.text}
        is_sent = filter_ is None or is_portable(filter_, context.settings.bounds.filter_bytes)
        if filter_ is not None and is_sent:
            request["filter"] = filter_to_json(filter_)
        if until is not None:
            request["until"] = until.text
        head, records = await self.request(service, request)
        neighbour = context.via(service)
        refusals = Counter[str]() if neighbour is None else neighbour.refusals
        try:
            page = history.read_answer(head, records, service)
            check = partial(history.checked, page, service, start, context.trust.verifier(service))
            page, unsigned = await context.runtime.in_thread(check)
        except TidegateError:
            refusals["record"] += 1
            raise
        refusals["signature"] += unsigned
        if is_sent or filter_ is None:
            return page
        return await context.runtime.in_thread(partial(history.filtered, page, filter_))

    async def request(self, service: str, request: Mapping[str, Any]) -> Answer:
        """Send a request to the neighbour that leads to a service, and wait for the answer.

        If another gateway of the broker holds the links, the request goes through it.
        """
        if self._context.has_lease:
            return await self._request_from_neighbour(service, request)
        return _answered(await self.relay.request(service, request, ANSWER_TIMEOUT_S))

    async def _request_from_neighbour(self, service: str, request: Mapping[str, Any]) -> Answer:
        neighbour = self._context.via(service)
        if neighbour is None or neighbour.session is None:
            raise LinkClosed(f"the link to {'nobody' if neighbour is None else neighbour.name} is down")
        if not self._routing.is_in_sync(service, neighbour.name):
            raise LinkClosed(f"{neighbour.name} has not yet received the filters that are requested from it")
        if len(neighbour.awaited_pages) >= MAX_AWAITED_PAGES:
            raise LinkClosed(f"{neighbour.name} has {MAX_AWAITED_PAGES} requests for history to answer already")
        id_ = next(self._ids)
        answer: asyncio.Future[Answer] = self._context.runtime.loop.create_future()
        neighbour.awaited_pages[id_] = answer
        neighbour.session.send({"type": "history", "id": id_, **request})
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                head, records = await answer
        except TimeoutError:
            raise LinkClosed(f"{neighbour.name} does not answer") from None
        finally:
            neighbour.awaited_pages.pop(id_, None)
        return _answered((head, records))

    async def receive_page(self, neighbour: Neighbour, head: dict[str, Any], records: list[bytes]) -> None:
        """Pass a page to the request that waits for it. A page that was not requested is charged to the neighbour."""
        waiting = neighbour.awaited_pages.pop(head["history"], None)
        if waiting is None and neighbour.session is not None:
            await neighbour.session.charge(UNWANTED_UNITS)
        if waiting is not None and not waiting.done():
            waiting.set_result((head, records))

    # Requests of neighbours ----------------------------------------------------------------

    def receive_request(self, neighbour: Neighbour, request: Mapping[str, Any]) -> None:
        """Answer a request in the background. Raises `NeighbourFault` if the neighbour waits for too many pages."""
        max_pages = self._context.settings.bounds.pages
        if neighbour.owed_pages >= max_pages:
            raise NeighbourFault(f"expected at most {max_pages:,} questions at once for pages of history")
        neighbour.owed_pages += 1
        self._context.runtime.spawn(self.answer(neighbour, neighbour.session, request))

    async def answer(self, neighbour: Neighbour, session: Session | None, request: Mapping[str, Any]) -> None:
        """Send a page of our own history, or one that we request from the next broker towards the origin.

        The answer is sent only in the session of the request: it says where forwarded events begin, and that holds for
        this session's forwarder.
        """
        service = str(request.get("service"))
        head: dict[str, Any] = {"service": service, "cursor": "", "history": request.get("id")}
        records: list[bytes] = []
        try:
            page_head, records = await self._page(neighbour, service, request)
            head |= page_head
        except (TidegateError, LinkClosed, TimeoutError, KeyError, TypeError, AttributeError) as problem:
            head["problem"] = str(problem) or repr(problem)
        finally:
            neighbour.owed_pages -= 1
        if session is not None and neighbour.session is session:
            session.send_events(head, records)

    async def _page(self, neighbour: Neighbour, service: str, request: Mapping[str, Any]) -> Answer:
        supply = self._forwarding.supply(neighbour, service)
        if supply is None:
            raise FederationError(f"no service {service!r}")
        if not self._routing.is_in_sync(service, neighbour.name):
            raise FederationError(f"{self._context.name} has not yet received the filters of {neighbour.name}")
        if "until" not in request:
            # Forwarding continues where history ends, also if this broker is killed: save the neighbour's filters.
            await self._store.save()
        if supply.is_own:
            page = await self._own_page(neighbour, supply, request)
            until = None if page.until is None else page.until.text
            head = {"start": page.start.text, "cursor": page.end.text, "until": until, "last": page.is_last}
            gaps = self._context.signer.records([gap.encode() for gap in page.lost])
            return head, [*gaps, *page.records]
        relayed = {key: value for key, value in request.items() if key not in ("type", "id")}
        head, records = await self._relay(neighbour, service, relayed)
        if "until" not in request:
            await self._forwarder_position(neighbour, service)
        return {key: head[key] for key in ("start", "cursor", "until", "last")}, records

    async def _relay(self, neighbour: Neighbour, service: str, request: Mapping[str, Any]) -> Answer:
        """Request a page on behalf of a neighbour, which may use only a part of all requests that we may send."""
        if neighbour.relay_slots is None:
            neighbour.relay_slots = asyncio.Semaphore(self._context.settings.bounds.relayed_pages)
        async with neighbour.relay_slots:
            return await self.request(service, request)

    async def _own_page(self, neighbour: Neighbour, supply: Supply, request: Mapping[str, Any]) -> HistoryPage:
        requested = request.get("filter")
        filter_ = None if requested is None else filter_from_json(requested, supply.schema)
        if "until" in request:
            until: Cursor | None = Cursor.from_text(request["until"])
        else:
            until = await self._forwarder_position(neighbour, supply.service)
        start = Cursor.from_text(request["place"])
        sign = self._context.signer.records
        read = partial(history.read_page, self._context.log, supply, filter_, start, until, sign)
        async with neighbour.history_lock:
            return await self._context.runtime.in_history_thread(read)

    async def _forwarder_position(self, neighbour: Neighbour, service: str) -> Cursor | None:
        """Return where the forwarder of a service is after it has sent all events that exist now.

        None: the stream does not exist yet. Raises a `FederationError` if there is no forwarder, or if it was replaced
        meanwhile.
        """
        forwarder = neighbour.forwarders.get(service)
        if forwarder is None:
            raise FederationError(f"{neighbour.name} has not requested {service!r}")
        runtime = self._context.runtime
        position: asyncio.Future[Cursor | None] = runtime.loop.create_future()
        forwarder.request_position(partial(runtime.call_from_thread, partial(_set_result, position)))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            cursor = await position
        if neighbour.forwarders.get(service) is not forwarder:
            raise FederationError(f"what {neighbour.name} may see of {service!r} has just changed; request it again")
        return cursor


def _set_result(position: asyncio.Future[Cursor | None], cursor: Cursor | None) -> None:
    if not position.done():
        position.set_result(cursor)


def _answered(answer: Answer) -> Answer:
    """Return an answer without empty records. Raises a `FederationError` if it is a problem."""
    head, records = answer
    if "problem" in head:
        raise FederationError(str(head["problem"]))
    return head, [record for record in records if record]
