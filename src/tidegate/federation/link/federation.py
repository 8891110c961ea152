"""All links of one broker, as the gateway uses them.

`Federation` builds the parts and passes calls on:

    Supervisor            lease, dialling, accepting, sessions
    MessageHandler        dispatches what a neighbour sends to the parts below
    Catalog               offers of neighbours and to neighbours
    Routing               messages of `federation.routes`
    Forwarding            our events to neighbours, one forwarder per link and service
    Mirrors               neighbours' events to our log
    HistoryExchange       pages of history, in both directions
    RemoteSubscriptions   filters that are needed here, and the sync points of mirrors
    SharedNeeds           filters that other gateways of this broker need
    LinkStateStore             state in the registry
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from tidegate.federation.link.catalog import Catalog
from tidegate.federation.link.context import LinkContext, LocalServices
from tidegate.federation.link.coverage import SyncPoint
from tidegate.federation.link.forwarding import Forwarding
from tidegate.federation.link.history import HistoryPage
from tidegate.federation.link.history_exchange import HistoryExchange
from tidegate.federation.link.mirrors import Mirrors
from tidegate.federation.link.needs import Needs
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.offers import Remote
from tidegate.federation.link.persistence import LinkStateStore
from tidegate.federation.link.protocol import MessageHandler
from tidegate.federation.link.remote_subscriptions import RemoteSubscriptions
from tidegate.federation.link.routing import Routing
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.link.shared_needs import SharedNeeds
from tidegate.federation.link.supervisor import Supervisor
from tidegate.federation.link.trust import Trust
from tidegate.federation.link.wire import LinkSocket
from tidegate.federation.routes import Broker
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog
from tidegate.registry import Registry, need_broker_name


class Federation:
    """All links of one broker. Created on an event loop, and used on that loop only.

    Files and the registry are read and written in threads, and each forwarder has a thread of its own.
    """

    def __init__(
        self,
        settings: LinkSettings,
        registry: Registry,
        log: EventLog,
        local: LocalServices,
        seed: int | None = None,
    ) -> None:
        """`seed` makes retry delays repeatable. Raises a `RegistryError` if the broker's name is not valid."""
        need_broker_name(settings.broker)
        self.settings = settings
        self._context = context = LinkContext(settings, registry, log, local)
        self.needs = needs = Needs(self._on_need_change, settings.linger_s)
        routing = Routing(context)
        self.store = store = LinkStateStore(context, needs)
        forwarding = Forwarding(context)
        self.mirrors = Mirrors(context, routing, store)
        self.catalog = Catalog(context, routing, store, forwarding, self.mirrors, needs)
        self.history = HistoryExchange(context, routing, store, forwarding)
        self._subscriptions = RemoteSubscriptions(context, routing, store, self.mirrors, self.history, needs)
        self.shared_needs = SharedNeeds(context, self._subscriptions, needs)
        handler = MessageHandler(context, routing, self.catalog, forwarding, self.mirrors, self.history)
        self._supervisor = Supervisor(
            context, routing, store, self.catalog, forwarding, self.mirrors, handler, self.history.relay, seed
        )

    def _on_need_change(self, service: str, id_: str, filter_: Filter | None) -> None:
        self._subscriptions.on_need_change(service, id_, filter_)

    # TableState ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of this broker."""
        return self._context.name

    @property
    def broker(self) -> Broker:
        """The routing tables."""
        return self._context.broker

    @property
    def trust(self) -> Trust:
        """The pinned keys, and which offers are accepted."""
        return self._context.trust

    @property
    def neighbours(self) -> Mapping[str, Neighbour]:
        """All links, by the name of the neighbour."""
        return self._context.neighbours

    @property
    def has_lease(self) -> bool:
        """True if this gateway, of all gateways of the broker, holds the links."""
        return self._context.has_lease

    @property
    def remotes(self) -> Mapping[str, Remote]:
        """Other brokers' services, by the name that they have here."""
        return self._context.remotes

    @property
    def refused_handshakes(self) -> int:
        """How many accepted sockets were closed because the other end did not prove who it is, or had to wait."""
        return self._supervisor.refused_handshakes

    # Links ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Restore the saved state of all links. Nothing is sent yet."""
        await self._supervisor.start()

    async def open(self) -> None:
        """Dial and accept from now on. Call it when all local subscribers are known."""
        await self._supervisor.open()

    async def close(self) -> None:
        """End all links and save their state. They continue from there after the next start."""
        await self._supervisor.close()

    async def reload_links(self) -> None:
        """Add and remove links as the registry says. Runs periodically; call it to see a change at once."""
        await self._supervisor.reload_links()

    async def accept(
        self,
        socket: LinkSocket,
        obstacle: Callable[[str], str | None] = lambda _: None,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the link of a broker that has dialled us. Returns when the link breaks or was refused.

        `obstacle(name)` returns why a neighbour may not use this connection, or None. `on_refusal` is called if the
        other end has not proved to be the neighbour that it claims to be.
        """
        await self._supervisor.accept(socket, obstacle, on_refusal)

    def send_offers(self) -> None:
        """Send neighbours the services that they may have now. Call it when local services or policies change."""
        self.catalog.send_all()

    # Subscriptions to other brokers' services ------------------------------------------------

    def hold(self, holder: Hashable, service: str, filter_: Filter | None) -> None:
        """Request the events of a filter for a holder, in place of its previous filter. None: all events."""
        self._subscriptions.hold(holder, service, filter_)

    def release(self, holder: Hashable) -> None:
        """Release the filter of a holder. It is still requested for `LinkSettings.linger_s`."""
        self._subscriptions.release(holder)

    def sync_point(self, service: str, filter_: Filter | None) -> SyncPoint | None:
        """Return the position after which a mirror has all events of a filter; None if it or the service is unknown."""
        return self._subscriptions.sync_point(service, filter_)

    async def wait_for_sync_point(self, service: str, filter_: Filter | None, timeout_s: float) -> bool:
        """Wait until a filter has a sync point. Returns False after the timeout, or at once while the link is down."""
        return await self._subscriptions.wait_for_sync_point(service, filter_, timeout_s)

    async def origin_position(self, service: str, cursor: Cursor) -> Cursor | None:
        """Return the position in history of a cursor in a mirror. None: it can't be determined."""
        return await self._subscriptions.origin_position(service, cursor)

    async def read_history(
        self, service: str, filter_: Filter | None, start: Cursor, until: Cursor | None
    ) -> HistoryPage:
        """Return a page of another broker's history; see `HistoryExchange.read`."""
        return await self.history.read(service, filter_, start, until)

    async def create_mirror(self, service: str) -> None:
        """Create the mirror of a service, so that it has cursors. Does nothing if it exists."""
        await self.mirrors.create(service)

    async def mirror_end(self, service: str) -> Cursor | None:
        """Return the end of a mirror. None: it does not exist yet."""
        return await self.mirrors.end(service)

    async def mirror_position(self, service: str, since: Cursor | None, until: Cursor | None) -> Cursor | None:
        """Return where a mirror continues after history up to `until`; see `Mirrors.position`."""
        return await self.mirrors.position(service, since, until)
