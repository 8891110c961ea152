"""What is believed of what a neighbour says: whose services it may offer, and what their origin has signed.

`gps@city` is a service of the broker `city`. It is believed

1. from the link to `city` alone, if there is one, whether it is up or not;
2. else from a link whose `transit` names `city`, or `*`;
3. from one link at a time: the first to offer a service of `city` holds the name. What another link offers under it is
   a conflict, which is shown to the operator, until the first has withdrawn all of it or is removed;
4. and if keys of `city` are pinned, only what these keys have signed, over whichever link it comes.

A name of our own is never believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.errors import FederationError
from tidegate.federation.link.keys import OriginKey, read_key_set
from tidegate.federation.link.offers import Remote, read_offer
from tidegate.federation.link.signing import Verifier, read_signed_offer
from tidegate.model import ServiceName
from tidegate.registry import Link
from tidegate.registry.links import ANY

Keys = Mapping[str, tuple[OriginKey, ...]]


@dataclass(frozen=True, slots=True)
class OfferRefusal:
    """Why an offer is not believed."""

    kind: str
    """`name`, `conflict` or `signature`: what it is counted under."""
    reason: str


@dataclass(frozen=True, slots=True)
class Claim:
    """An offer of a neighbour; whether that may make it is yet to be judged."""

    offer: Remote
    issued: int | None = None
    """When its origin has signed it, in microseconds; None: it need not be signed."""
    problem: str | None = None
    """What is wrong with its signature."""


class Trust:
    """Decides what is believed of neighbours. The event loop alone asks it, but for `read` and verifiers."""

    def __init__(self, me: str, settled: Keys, clock: Callable[[], float] = time.time) -> None:
        """`settled` are the pinned keys of the profile: none of the registry takes their place."""
        self._me, self._settled, self._clock = me, settled, clock
        self._texts: Mapping[str, str] = {}
        self._keys: Keys = dict(settled)
        self.version = 0
        """Another number whenever the pinned keys are others."""
        self._issued: dict[str, int] = {}
        """By service, when the newest signed offer was issued: an older one does not take its place."""

    # Pinned keys -------------------------------------------------------------------------------

    def pin(self, texts: Mapping[str, str]) -> bool:
        """Take in the pinned keys of the registry; say whether they are others than before."""
        if texts == self._texts:
            return False
        self._texts = dict(texts)
        read = {name: read_key_set(text, f"the pinned keys of {name}", private=False) for name, text in texts.items()}
        self._keys = {**read, **self._settled}
        self.version += 1
        return True

    def keys(self, origin: str) -> tuple[OriginKey, ...]:
        """Return the pinned keys of a broker."""
        return self._keys.get(origin, ())

    @property
    def pinned(self) -> Keys:
        """All pinned keys, by the broker's name."""
        return self._keys

    def verifier(self, service: str) -> Verifier | None:
        """Return what verifies a service's events; None: they need no signature."""
        keys = self._keys.get(ServiceName.parse(service).origin or "")
        return None if keys is None else Verifier(keys, self._clock)

    # Offers ------------------------------------------------------------------------------------

    def read(self, said: Sequence[Mapping[str, Any]], via: str) -> list[Claim]:
        """Read what a neighbour offers, and verify what must be signed; in any thread, as it may be much."""
        keys, now = self._keys, self._clock()
        return [_claim(each, via, keys, now) for each in said]

    def judge(
        self, claim: Claim, link: Link, links: Collection[str], holders: Mapping[str, str]
    ) -> OfferRefusal | None:
        """Say why an offer of a neighbour is not believed; None: it is.

        `links` are the brokers that we are linked to; `holders` says over which link each broker's services are known.
        """
        name, origin = claim.offer.service.name, claim.offer.origin
        is_direct = origin == link.name
        if origin == self._me:
            return OfferRefusal("name", f"{origin} is this broker")
        if not is_direct and origin in links:
            return OfferRefusal("name", f"there is a link to {origin}: its services are believed from there alone")
        if not is_direct and not {origin, ANY} & set(link.transit):
            allow = f"tidegate link change {link.name} --transit {origin}"
            return OfferRefusal("name", f"{link.name} may not pass on services of {origin}; to allow it: {allow}")
        if claim.problem is not None:
            return OfferRefusal("signature", f"keys of {origin} are pinned, and {claim.problem}")
        if claim.issued is not None:
            if not is_direct and not claim.offer.onward:
                return OfferRefusal("signature", f"{origin} does not let {name!r} be passed on")
            if claim.issued < self._issued.get(name, 0):
                return OfferRefusal("signature", f"a newer offer of {name!r} was seen before")
            self._issued[name] = claim.issued
        holder = holders.get(origin)
        if holder is not None and holder != link.name:
            return OfferRefusal("conflict", f"the services of {origin} are known over the link to {holder}")
        return None


def _claim(said: Mapping[str, Any], via: str, keys: Keys, now: float) -> Claim:
    """Read an offer; where keys of its origin are pinned, only what these have signed counts."""
    offer = read_offer(said, via)
    pinned = keys.get(offer.origin)
    if pinned is None:
        return Claim(offer)
    try:
        payload, issued = read_signed_offer(said, pinned, now)
        signed = replace(read_offer(payload, via), document=said)
    except FederationError as problem:
        return Claim(offer, problem=str(problem))
    if signed.service.name != offer.service.name:
        return Claim(offer, problem=f"the signature is that of {signed.service.name!r:.80}")
    return Claim(signed, issued)


def with_access(offer: Remote, link: Link) -> Remote:
    """Return an offer that is believed, for guests only where the link says so, whatever its origin claims."""
    if offer.service.access.to != "public" or {offer.service.name, ANY} & set(link.public):
        return offer
    return replace(offer, service=replace(offer.service, access=replace(offer.service.access, to="keys")))
