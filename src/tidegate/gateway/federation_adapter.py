"""A gateway among others: what neighbours see of its services, and what is needed here of theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidegate.delivery.batch import ahead
from tidegate.delivery.history import HistoryReader
from tidegate.delivery.latest import Entry, Piece
from tidegate.delivery.notices import LOST_AT_ORIGIN
from tidegate.delivery.start import Start
from tidegate.delivery.subscriber import Notice, Subscriber
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


JOIN_S = 1.0
"""How long somebody who begins now waits to hear from where on a mirror has what they want."""
UNKNOWN = "it was away for so long that nobody knows what it missed"
"""Why one who comes back to another broker's service is told of a gap."""


def caller_of_link(link: Link) -> Caller:
    """Whom a neighbour is to our policies: somebody of its broker's name, who reads."""
    return Caller(f"link_{link.name}", link.name, "consumer", link.services)


class FederationAdapter:
    """A gateway's side of its links."""

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        policies: Policies,
        settings: LinkSettings,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        """`changed` is awaited when other brokers' services are others."""
        self._policies, self._changed = policies, changed
        self.services: Mapping[str, Service] = {}
        """The gateway's own."""
        self.federation = Federation(settings, registry, log, self)

    @property
    def remotes(self) -> Mapping[str, Remote]:
        """Services of others."""
        return self.federation.remotes

    # What neighbours see -----------------------------------------------------------------

    def offers(self, link: Link) -> list[dict[str, Any]]:
        """Our own services, as a neighbour sees them."""
        caller, me = caller_of_link(link), self.federation.name
        found = []
        for name, service in sorted(self.services.items()):
            if self._policies.sees(caller, name):
                schema = self._policies.schema(caller, name)
                if len(schema.root.fields):
                    found.append(offered(service, schema, me))
        return found

    def supply(self, link: Link, service: str) -> Supply | None:
        """One of our own services, for a neighbour."""
        caller = caller_of_link(link)
        if service not in self.services or not self._policies.sees(caller, service):
            return None
        schema, hidden = self._policies.schema(caller, service), self._policies.withheld(caller, service)
        ids = self._policies.ids(caller, service)
        return Supply(str(ServiceName(service, self.federation.name)), service, schema, hidden, ids)

    def passes_on(self, link: Link, name: str) -> bool:
        """Whether a neighbour may have another broker's service of us."""
        return self._policies.sees(caller_of_link(link), name)

    async def changed(self) -> None:
        """Other brokers' services are others now."""
        await self._changed()

    # What is needed here -----------------------------------------------------------------

    def on_subscription_change(self, subscriber: Subscriber, is_here: bool) -> None:
        """Somebody listens, wants something else, or listens no more."""
        if not ServiceName.parse(subscriber.service).is_remote:
            return
        if is_here:
            self.federation.hold(subscriber, subscriber.service, subscriber.filter)
        else:
            self.federation.release(subscriber)

    def heed_durable(self, id_: str, found: RegisteredSubscription | None) -> None:
        """A durable subscription was made or changed, or, None, is gone: it is needed also while nobody consumes it."""
        holder: Hashable = ("durable", id_)
        remote = None if found is None else self.remotes.get(found.subscription.service)
        if found is None or found.state != "active":
            self.federation.release(holder)
        elif remote is not None:
            with suppress(TidegateError):  # it does not fit any more: whoever consumes it is told
                record = found.subscription  # by meaning or not: whoever can't evaluate a filter sends everything
                filter_ = Filter(record.filter, remote.schema, list(record.params)) if record.filter.strip() else None
                self.federation.hold(holder, record.service, filter_)

    # What is not here ------------------------------------------------------------------------

    async def start_cursor(self, service: str, start: Start, filter_: Filter | None) -> Cursor | None:
        """The place of a start in another broker's history, where its mirror alone would not do.

        Who begins now begins in the mirror, if that has what they want from now on: else what is put out until it
        has is history, too.
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
        moment = at_moment(now_micros())
        return None if await self.federation.wait_for_sync_point(service, filter_, JOIN_S) else moment

    def now_cursor(self, subscriber: Subscriber) -> Cursor | None:
        """This moment, where a mirror has not all that is wanted from now on."""
        is_ours = subscriber.service not in self.remotes
        if is_ours or self.federation.sync_point(subscriber.service, subscriber.filter) is not None:
            return None
        return at_moment(now_micros())

    def is_historical(self, cursor: Cursor | None) -> bool:
        """Whether a place is one in another broker's history."""
        return is_past(cursor)

    def needs_history(self, subscriber: Subscriber) -> bool:
        """Whether a mirror has not all that is wanted from a place on: it is history, or was not asked for then."""
        place = subscriber.position
        if place is None or subscriber.service not in self.remotes:
            return is_past(place)
        joint = self.federation.sync_point(subscriber.service, subscriber.filter)
        is_elsewhere = joint is not None and joint.mirror.generation != place.generation  # the mirror was made anew
        return is_past(place) or joint is None or not (is_elsewhere or joint.is_before(place))

    async def wait_for_sync(self, subscriber: Subscriber) -> None:
        """Return when a mirror has what is wanted from now on, or that takes too long."""
        if subscriber.service in self.remotes:
            await self.federation.wait_for_sync_point(subscriber.service, subscriber.filter, JOIN_S)

    def is_partial(self, service: str) -> bool:
        """A mirror has what was asked for."""
        return ServiceName.parse(service).is_remote

    def open(self, subscriber: Subscriber) -> HistoryReader:
        """What a subscriber is given of it."""
        return _Past(self.federation, subscriber)


class _Past:
    """One subscriber's way through another broker's history, up to where the mirror goes on."""

    def __init__(self, federation: Federation, subscriber: Subscriber) -> None:
        assert subscriber.cursor is not None
        self._federation, self._subscriber, self._place = federation, subscriber, subscriber.cursor
        self._page: HistoryPage | None = None
        self._mirror: Cursor | None = None
        """The mirror's end before the first page was asked for."""
        self.log_cursor: Cursor | None = None

    async def next_page(self) -> Piece | None:
        """The next events, which its filter matches."""
        federation, service, filter_ = self._federation, self._subscriber.service, self._subscriber.filter
        page = self._page
        if page is not None and page.is_last and self._place == page.end:
            self.log_cursor = await federation.mirror_position(service, self._mirror, page.until)
            return None
        if page is None:
            # What it wants is asked for first: so nothing is between the history and what comes.
            federation.hold(self._subscriber, service, filter_)
            if not await federation.wait_for_sync_point(service, filter_, JOIN_S):
                raise FederationError(f"it is not known yet from where on there is a mirror of {service!r}")
            if not is_past(self._place):
                found = await self._behind()
                if found is not None:
                    return found
                if self.log_cursor is not None:
                    return None
            self._mirror = await federation.mirror_end(service)
        try:
            page = await federation.read_history(service, filter_, self._place, None if page is None else page.until)
        except (LinkClosed, TimeoutError) as problem:
            raise FederationError(str(problem)) from problem
        self._page = page
        places = cursors_after(page, len(page.records))
        entries = [Entry(n, places[n].text, record, "") for n, record in enumerate(page.records)]
        return Piece(service, entries, _missed(page) if page.lost else None)

    async def _behind(self) -> Piece | None:
        """Find the place in history of one in the mirror, which has not all behind it; a piece: what is told of it."""
        if self.log_cursor is not None:
            return None
        service, place = self._subscriber.service, self._place
        known = self._federation.sync_point(service, self._subscriber.filter)
        found = await self._federation.origin_position(service, place)
        if found is not None:
            self._place = found
            return None
        self.log_cursor = place if known is None else ahead(place, known.mirror.offsets)
        return Piece(service, [], Notice("gap", place.text, {"reason": UNKNOWN}))

    def advance(self, count: int) -> Cursor:
        """So many were given: the place behind them."""
        if self._page is None:
            return self._place
        if count == len(self._page.records):
            self._place = self._page.end
        elif count:
            self._place = cursors_after(self._page, count)[-1]
        return self._place


def _missed(page: HistoryPage) -> Notice:
    missed = [
        {"partition": each.partition, "missed_from": each.missed_from, "resumed_at": each.resumed_at}
        for each in page.lost
    ]
    return Notice("gap", page.start.text, {"reason": LOST_AT_ORIGIN, "missed": missed})
