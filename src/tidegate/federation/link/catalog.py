"""The services that brokers offer each other: accepts the offers of neighbours, and sends them ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.forwarding import Forwarding
from tidegate.federation.link.mirrors import Mirrors
from tidegate.federation.link.needs import Needs
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.offers import Remote, within_bounds
from tidegate.federation.link.persistence import LinkStateStore
from tidegate.federation.link.routing import Routing
from tidegate.federation.link.trust import Claim, with_access

_log = structlog.get_logger("tidegate.link")


class Catalog:
    """Keeps `LinkContext.remotes` equal to the accepted offers of all neighbours. Used on the event loop only."""

    def __init__(
        self,
        context: LinkContext,
        routing: Routing,
        store: LinkStateStore,
        forwarding: Forwarding,
        mirrors: Mirrors,
        needs: Needs,
    ) -> None:
        self._context, self._routing, self._store = context, routing, store
        self._forwarding, self._mirrors, self._needs = forwarding, mirrors, needs

    # Offers of neighbours --------------------------------------------------------------

    async def accept(
        self, neighbour: Neighbour, offers: Sequence[Mapping[str, Any]] | None = None, *, is_new: bool = True
    ) -> None:
        """Replace what a neighbour offers. Without `offers` its last ones are judged again.

        `is_new` is False for offers that were judged before: their refusals are not counted again. Raises a
        `FederationError` if an offer can't be read. Call `publish` afterwards.
        """
        trust = self._context.trust
        async with neighbour.offers_lock:
            received = [dict(offer) for offer in (neighbour.received_offers if offers is None else offers)]
            claims: list[Claim] = []
            version: int | None = None
            while version != trust.version:  # else the pinned keys have changed meanwhile
                version = trust.version
                claims = await self._context.runtime.in_thread(partial(trust.read, received, neighbour.name))
            if self._context.neighbours.get(neighbour.name) is neighbour:
                neighbour.received_offers = received
                self._judge(neighbour, claims, is_new=is_new)

    def _judge(self, neighbour: Neighbour, claims: Iterable[Claim], *, is_new: bool) -> None:
        context = self._context
        offers: dict[str, Remote] = {}
        conflicts: dict[str, Remote] = {}
        refused: dict[str, str] = {}
        holders = self._holders()
        for claim in claims:
            name = claim.offer.service.name
            problem = context.trust.judge(claim, neighbour.link, context.neighbours.keys(), holders)
            if problem is None:
                offers[name] = with_access(claim.offer, neighbour.link)
                continue
            refused[name] = problem.reason
            neighbour.refusals[problem.kind] += is_new
            if problem.kind == "conflict":
                conflicts[name] = claim.offer
        for service in neighbour.offers.keys() - offers.keys():
            self.withdraw(service)
        if new := sorted(refused.keys() - neighbour.refused.keys()):
            reason = refused[new[0]]
            _log.warning("offers are refused", by=neighbour.name, count=len(new), service=new[0], reason=reason)
        neighbour.offers, neighbour.conflicts, neighbour.refused = offers, conflicts, refused
        context.remotes.update(offers)
        for service in offers:
            self._routing.send(context.broker.reconsider(service))

    def _holders(self) -> dict[str, str]:
        """Return, by origin, the neighbour over whose link the origin's services are known."""
        return {remote.origin: remote.via for remote in self._context.remotes.values()}

    def withdraw(self, service: str) -> None:
        """Remove a service that is not offered any more, with everything that was needed of it."""
        self._needs.drop(service)
        self._store.collect_needs()
        self._context.remotes.pop(service, None)
        self._routing.send(self._context.broker.reconsider(service))

    async def judge_all_again(self) -> None:
        """Judge all offers again, after a link was added or removed or a pinned key has changed."""
        for neighbour in list(self._context.neighbours.values()):
            await self.accept(neighbour, is_new=False)
            for service in list(neighbour.mirrors):  # they may need another verifier
                await self._mirrors.close(neighbour, service)
        await self.publish()

    async def publish(self) -> None:
        """Announce that other brokers' services have changed, here and to neighbours.

        A service that one neighbour has withdrawn is taken from another that offers it, too.
        """
        await self._context.local.changed()
        has_more = False
        for neighbour in list(self._context.neighbours.values()):
            held_services = self._holders().keys()
            if any(offer.origin not in held_services for offer in neighbour.conflicts.values()):
                await self.accept(neighbour, is_new=False)
                has_more = True
        if has_more:
            await self._context.local.changed()
        self.send_all()

    # Offers to neighbours --------------------------------------------------------------

    def send_all(self) -> None:
        """Send every neighbour its offers if they have changed. Stop forwarding services that it may no longer see."""
        for neighbour in self._context.neighbours.values():
            if neighbour.session is not None:
                self.send(neighbour)
                self._forwarding.update_all(neighbour)

    def send(self, neighbour: Neighbour) -> None:
        """Send a neighbour our services and those that we pass on, if they differ from the last offers that we sent."""
        context = self._context
        own = context.signer.offers(context.local.offers(neighbour.link))
        onward = [self._passed_on(other, neighbour) for other in context.neighbours.values() if other is not neighbour]
        offers = within_bounds(own, onward, context.settings.bounds)
        if (left := len(own) + sum(map(len, onward)) - len(offers)) and offers != neighbour.sent_offers:
            _log.warning("too many services to offer all of them", to=neighbour.name, count=left)
        if neighbour.sent_offers != offers and neighbour.session is not None:
            neighbour.sent_offers = offers
            neighbour.session.send({"type": "offers", "services": offers})

    def _passed_on(self, source: Neighbour, neighbour: Neighbour) -> list[dict[str, Any]]:
        """Return the offers of one neighbour that are passed on to another."""
        return [
            dict(offer.document)
            for name, offer in sorted(source.offers.items())
            if offer.onward and offer.origin != neighbour.name and self._context.local.passes_on(neighbour.link, name)
        ]
