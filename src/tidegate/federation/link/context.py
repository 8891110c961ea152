"""What all parts of a broker's links share, and what they need to know of the broker's own services."""

from __future__ import annotations

from typing import Any, Protocol

from tidegate.federation.link.forwarder import Supply
from tidegate.federation.link.keys import KeyFile
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.offers import Remote
from tidegate.federation.link.runtime import Runtime
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.link.signing import Signer
from tidegate.federation.link.trust import Trust
from tidegate.federation.routes import Broker
from tidegate.logs import EventLog
from tidegate.registry import Link, Registry


class LocalServices(Protocol):
    """The broker's own services, as each neighbour may see them. Called on the event loop."""

    def offers(self, link: Link) -> list[dict[str, Any]]:
        """Return an offer for each of our services that a neighbour may see."""

    def supply(self, link: Link, service: str) -> Supply | None:
        """Return the stream of one of our services and what a neighbour sees of it. None: it may not see it."""

    def passes_on(self, link: Link, name: str) -> bool:
        """True if a neighbour may get another broker's service from us."""

    async def changed(self) -> None:
        """Called after the set of other brokers' services, or one of their schemas, has changed."""


class LinkContext:
    """TableState that the parts of a `Federation` share. Used on the event loop only."""

    def __init__(self, settings: LinkSettings, registry: Registry, log: EventLog, local: LocalServices) -> None:
        self.settings, self.registry, self.log, self.local = settings, registry, log, local
        self.runtime = Runtime()
        self.broker = Broker(settings.broker, settings.strategy, self.leads, settings.adaptive)
        self.trust = Trust(settings.broker, settings.origins)
        self.signer = Signer(None if settings.signing_keys is None else KeyFile(settings.signing_keys))
        self.neighbours: dict[str, Neighbour] = {}
        self.remotes: dict[str, Remote] = {}
        """Other brokers' services whose offers were accepted, by the name that they have here."""
        self.has_lease = False
        """True while this gateway, of all gateways of the broker, runs the links."""

    @property
    def name(self) -> str:
        """The name of this broker."""
        return self.settings.broker

    def leads(self, service: str, neighbour: str) -> bool:
        """True if a service is known over the link to this neighbour."""
        remote = self.remotes.get(service)
        return remote is not None and remote.via == neighbour

    def via(self, service: str) -> Neighbour | None:
        """Return the neighbour that passes a service on to us. None: there is none, or its link was removed."""
        remote = self.remotes.get(service)
        return None if remote is None else self.neighbours.get(remote.via)
