"""Decides which offers of a neighbour are accepted, and which signatures they need.

`gps@city` is a service of the broker `city`. An offer of it is accepted

1. only over the link to `city`, if there is one, whether it is up or down;
2. otherwise over a link whose `transit` contains `city` or `*`;
3. over one link at a time: the first link to offer a service of `city` holds that origin. An offer of the same origin
   over another link is a conflict, which is shown to the operator, until the first link has withdrawn all services of
   the origin or is removed;
4. if keys of `city` are pinned, only with a signature of one of them, over any link.

An offer of a service of this broker itself is always refused.
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
    """Why an offer was refused."""

    kind: str
    """`name`, `conflict` or `signature`; refusals are counted by kind."""
    reason: str


@dataclass(frozen=True, slots=True)
class Claim:
    """An offer that was read, before `Trust.judge` decides about it."""

    offer: Remote
    issued: int | None = None
    """Time of the signature, in microseconds since 1970. None: no keys of the origin are pinned."""
    problem: str | None = None
    """Why the signature is invalid. None: it is valid, or none is needed."""


class Trust:
    """Decides which offers are accepted. `read` and verifiers may run on any thread, all else on the event loop."""

    def __init__(self, me: str, profile_keys: Keys, clock: Callable[[], float] = time.time) -> None:
        """`profile_keys` are the pinned keys of the profile. They take precedence over those of the registry."""
        self._me, self._profile_keys, self._clock = me, profile_keys, clock
        self._texts: Mapping[str, str] = {}
        self._keys: Keys = dict(profile_keys)
        self.version = 0
        """Increases whenever the pinned keys change."""
        self._issued: dict[str, int] = {}
        """By service, the time of the newest signed offer. Older ones are refused."""

    # Pinned keys -------------------------------------------------------------------------------

    def pin(self, texts: Mapping[str, str]) -> bool:
        """Replace the pinned keys of the registry, given as JWK sets by broker. Returns True if they have changed.

        Raises a `FederationError` if a set can't be read; its text names the broker.
        """
        if texts == self._texts:
            return False
        self._texts = dict(texts)
        read = {name: read_key_set(text, f"the pinned keys of {name}", private=False) for name, text in texts.items()}
        self._keys = {**read, **self._profile_keys}
        self.version += 1
        return True

    def keys(self, origin: str) -> tuple[OriginKey, ...]:
        """Return the pinned keys of a broker; empty if there are none."""
        return self._keys.get(origin, ())

    @property
    def pinned(self) -> Keys:
        """All pinned keys, by the broker's name."""
        return self._keys

    def verifier(self, service: str) -> Verifier | None:
        """Return a new verifier for a service's events. None: no keys of its origin are pinned."""
        keys = self._keys.get(ServiceName.parse(service).origin or "")
        return None if keys is None else Verifier(keys, self._clock)

    # Offers ------------------------------------------------------------------------------------

    def read(self, documents: Sequence[Mapping[str, Any]], via: str) -> list[Claim]:
        """Read a neighbour's offers and verify their signatures. It may take long; call it on a thread.

        Raises a `FederationError` if an offer is malformed. An invalid signature is reported in the claim.
        """
        keys, now = self._keys, self._clock()
        return [_claim(document, via, keys, now) for document in documents]

    def judge(
        self, claim: Claim, link: Link, links: Collection[str], holders: Mapping[str, str]
    ) -> OfferRefusal | None:
        """Return why an offer is refused. None: it is accepted.

        `link` is the link over which it came, `links` are the names of all neighbours, and `holders` has, by origin,
        the link over which its services were accepted before.
        """
        name, origin = claim.offer.service.name, claim.offer.origin
        is_direct = origin == link.name
        if origin == self._me:
            return OfferRefusal("name", f"{origin} is this broker")
        if not is_direct and origin in links:
            return OfferRefusal("name", f"there is a link to {origin}: its services are accepted from there only")
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


def _claim(document: Mapping[str, Any], via: str, keys: Keys, now: float) -> Claim:
    """Read an offer. If keys of its origin are pinned, only the signed part of it is used."""
    offer = read_offer(document, via)
    pinned = keys.get(offer.origin)
    if pinned is None:
        return Claim(offer)
    try:
        payload, issued = read_signed_offer(document, pinned, now)
        signed = replace(read_offer(payload, via), document=document)
    except FederationError as problem:
        return Claim(offer, problem=str(problem))
    if signed.service.name != offer.service.name:
        return Claim(offer, problem=f"the signature is that of {signed.service.name!r:.80}")
    return Claim(signed, issued)


def with_access(offer: Remote, link: Link) -> Remote:
    """Return an accepted offer, with public access only if the operator made the service public on this link."""
    if offer.service.access.to != "public" or {offer.service.name, ANY} & set(link.public):
        return offer
    return replace(offer, service=replace(offer.service, access=replace(offer.service.access, to="keys")))
