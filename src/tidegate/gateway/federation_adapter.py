"""Connects the gateway with federation: offers its services to neighbours, and subscribes to theirs as needed here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidegate.delivery.batch import ahead
from tidegate.delivery.history import HistoryReader
from tidegate.delivery.latest import Entry, Piece
from tidegate.delivery.notices import LOST_AT_ORIGIN
from tidegate.delivery.start import Start
from tidegate.delivery.subscriber import DeliveryNotice, Subscriber
from tidegate.errors import FederationError, TidegateError
from tidegate.federation.link import Federation, LinkClosed, LinkSettings, Remote, Supply, offered
from tidegate.federation.link.history import BEGINNING, HistoryPage, at_moment, cursors_after, is_past
from tidegate.filters import Filter
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.auth.policy import Policies
from tidegate.logs import Cursor, EventLog
from tidegate.logs.segments import now_micros
from tidegate.model import ServiceName
from tidegate.registry import Link, RegisteredSubscription, Registry
from tidegate.services import Service

if TYPE_CHECKING:
    from collections.abc import Hashable


SYNC_POINT_TIMEOUT_S = 1.0
"""How long a new subscriber waits until the sync point of its filter in the mirror is known."""
UNKNOWN_GAP = "the cursor is too old to determine which events were missed"
"""Reason of a gap for a subscriber of a remote service whose cursor has no known position at the origin."""


def caller_of_link(link: Link) -> Caller:
    """Return the caller that policies see for a neighbour: a consumer with the name of the link."""
    return Caller(f"link_{link.name}", link.name, "consumer", link.services)


class FederationAdapter:
    """The gateway's side of its links. All methods run on the event loop."""

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        policies: Policies,
        settings: LinkSettings,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        """`changed` is awaited when the services of other brokers change."""
        self._policies, self._changed = policies, changed
        self.services: Mapping[str, Service] = {}
        """The services of this gateway."""
        self.federation = Federation(settings, registry, log, self)

    @property
    def remotes(self) -> Mapping[str, Remote]:
        """Services of other brokers, by name."""
        return self.federation.remotes

    # For neighbours ---------------------------------------------------------------------

    def offers(self, link: Link) -> list[dict[str, Any]]:
        """Return the offers of our services that a neighbour may see."""
        caller, me = caller_of_link(link), self.federation.name
        offers = []
        for name, service in sorted(self.services.items()):
            if self._policies.sees(caller, name):
                schema = self._policies.schema(caller, name)
                if len(schema.root.fields):
                    offers.append(offered(service, schema, me))
        return offers

    def supply(self, link: Link, service: str) -> Supply | None:
        """Return one of our services for a neighbour; None if there is none that it may see."""
        caller = caller_of_link(link)
        if service not in self.services or not self._policies.sees(caller, service):
            return None
        schema, hidden = self._policies.schema(caller, service), self._policies.withheld(caller, service)
        ids = self._policies.ids(caller, service)
        return Supply(str(ServiceName(service, self.federation.name)), service, schema, hidden, ids)

    def passes_on(self, link: Link, name: str) -> bool:
        """True if we may forward the service of another broker to a neighbour."""
        return self._policies.sees(caller_of_link(link), name)

    async def changed(self) -> None:
        """Called by federation when the services of other brokers have changed."""
        await self._changed()

    # Local demand ------------------------------------------------------------------------

    def on_subscription_change(self, subscriber: Subscriber, is_here: bool) -> None:
        """Called when a subscriber is added or changes its filter (`is_here`), or leaves."""
        if not ServiceName.parse(subscriber.service).is_remote:
            return
        if is_here:
            self.federation.hold(subscriber, subscriber.service, subscriber.filter)
        else:
            self.federation.release(subscriber)

    def on_durable_change(self, id_: str, registered: RegisteredSubscription | None) -> None:
        """Called when a durable subscription is created, changed or removed (None).

        Its service is mirrored also while no consumer is connected.
        """
        holder: Hashable = ("durable", id_)
        remote = None if registered is None else self.remotes.get(registered.subscription.service)
        if registered is None or registered.state != "active":
            self.federation.release(holder)
        elif remote is not None:
            with suppress(TidegateError):  # the filter no longer fits the schema: consumers get the error
                record = registered.subscription  # a broker that can't evaluate the filter sends all events
                filter_ = Filter(record.filter, remote.schema, list(record.params)) if record.filter.strip() else None
                self.federation.hold(holder, record.service, filter_)

    # History ---------------------------------------------------------------------------------

    async def start_cursor(self, service: str, start: Start, filter_: Filter | None) -> Cursor | None:
        """Return the cursor of a start in the history of another broker; None if the mirror is enough.

        A subscriber that starts now reads the mirror if its sync point is known in time. Otherwise events until the
        sync point are history, too.
        """
        if not ServiceName.parse(service).is_remote:
            return None
        await self.federation.create_mirror(service)
        if start.cursor is not None:
            return None
        if start.since_micros is not None:
            return at_moment(start.since_micros)
        if start.beginning:
            return BEGINNING
        now = at_moment(now_micros())
        return None if await self.federation.wait_for_sync_point(service, filter_, SYNC_POINT_TIMEOUT_S) else now

    def now_cursor(self, subscriber: Subscriber) -> Cursor | None:
        """Return a cursor in history for the current time; None if the mirror has all events from now on."""
        is_ours = subscriber.service not in self.remotes
        if is_ours or self.federation.sync_point(subscriber.service, subscriber.filter) is not None:
            return None
        return at_moment(now_micros())

    def is_historical(self, cursor: Cursor | None) -> bool:
        """True if a cursor is one in the history of another broker."""
        return is_past(cursor)

    def needs_history(self, subscriber: Subscriber) -> bool:
        """True if the mirror lacks events after the cursor: it is in history, or before the filter's sync point."""
        cursor = subscriber.position
        if cursor is None or subscriber.service not in self.remotes:
            return is_past(cursor)
        sync_point = self.federation.sync_point(subscriber.service, subscriber.filter)
        # Another generation: the mirror was deleted and created again.
        is_recreated = sync_point is not None and sync_point.mirror.generation != cursor.generation
        return is_past(cursor) or sync_point is None or not (is_recreated or sync_point.is_before(cursor))

    async def wait_for_sync(self, subscriber: Subscriber) -> None:
        """Wait until the sync point of a subscriber is known, at most `SYNC_POINT_TIMEOUT_S`."""
        if subscriber.service in self.remotes:
            await self.federation.wait_for_sync_point(subscriber.service, subscriber.filter, SYNC_POINT_TIMEOUT_S)

    def is_partial(self, service: str) -> bool:
        """True if the local log may lack events: a mirror only has those that local subscribers asked for."""
        return ServiceName.parse(service).is_remote

    def open(self, subscriber: Subscriber) -> HistoryReader:
        """Return the reader of the history for a subscriber."""
        return _RemoteHistoryReader(self.federation, subscriber)


class _RemoteHistoryReader:
    """Reads the history of a remote service for one subscriber, up to the start of the mirror."""

    def __init__(self, federation: Federation, subscriber: Subscriber) -> None:
        assert subscriber.cursor is not None
        self._federation, self._subscriber, self._cursor = federation, subscriber, subscriber.cursor
        self._page: HistoryPage | None = None
        self._mirror: Cursor | None = None
        """The end of the mirror before the first page was requested."""
        self.log_cursor: Cursor | None = None

    async def next_page(self) -> Piece | None:
        """Return the next events that match the filter; None at the end of the history. Raises FederationError."""
        federation, service, filter_ = self._federation, self._subscriber.service, self._subscriber.filter
        page = self._page
        if page is not None and page.is_last and self._cursor == page.end:
            self.log_cursor = await federation.mirror_position(service, self._mirror, page.until)
            return None
        if page is None:
            # Subscribe before reading, so that no event is between the history and the mirror.
            federation.hold(self._subscriber, service, filter_)
            if not await federation.wait_for_sync_point(service, filter_, SYNC_POINT_TIMEOUT_S):
                raise FederationError(f"the mirror of {service!r} has no sync point yet; try again")
            if not is_past(self._cursor):
                gap = await self._leave_mirror()
                if gap is not None:
                    return gap
                if self.log_cursor is not None:
                    return None
            self._mirror = await federation.mirror_end(service)
        try:
            page = await federation.read_history(service, filter_, self._cursor, None if page is None else page.until)
        except (LinkClosed, TimeoutError) as exc:
            raise FederationError(str(exc)) from exc
        self._page = page
        cursors = cursors_after(page, len(page.records))
        entries = [Entry(n, cursors[n].text, record, "") for n, record in enumerate(page.records)]
        return Piece(service, entries, _missed(page) if page.lost else None)

    async def _leave_mirror(self) -> Piece | None:
        """Replace the cursor in the mirror by one in the history of the origin. Returns a gap if there is none."""
        if self.log_cursor is not None:
            return None
        service, cursor = self._subscriber.service, self._cursor
        sync_point = self._federation.sync_point(service, self._subscriber.filter)
        origin = await self._federation.origin_position(service, cursor)
        if origin is not None:
            self._cursor = origin
            return None
        self.log_cursor = cursor if sync_point is None else ahead(cursor, sync_point.mirror.offsets)
        return Piece(service, [], DeliveryNotice("gap", cursor.text, {"reason": UNKNOWN_GAP}))

    def advance(self, count: int) -> Cursor:
        """Return the cursor after the first `count` events of the page, which were delivered."""
        if self._page is None:
            return self._cursor
        if count == len(self._page.records):
            self._cursor = self._page.end
        elif count:
            self._cursor = cursors_after(self._page, count)[-1]
        return self._cursor


def _missed(page: HistoryPage) -> DeliveryNotice:
    missed = [
        {"partition": gap.partition, "missed_from": gap.missed_from, "resumed_at": gap.resumed_at} for gap in page.lost
    ]
    return DeliveryNotice("gap", page.start.text, {"reason": LOST_AT_ORIGIN, "missed": missed})
