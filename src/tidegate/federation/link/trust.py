"""What is believed of what a neighbour says: whose services it may offer, and what their origin has signed.

`gps@city` is a service of the broker `city`. It is believed

1. from the link to `city`, if there is one, whether it is up or not;
2. else from a link whose `transit` names `city`, or `*`, and, if keys of `city` are pinned, from any link, but only
   what these keys have signed;
3. from one link at a time: the first to offer a service of `city` holds the name. What another link offers under it is
   a conflict, which is shown to the operator, until the first has withdrawn all of it or is removed.

A name of our own is never believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.errors import FederationError
from tidegate.federation.link.keys import OriginKey, read_key_set
from tidegate.federation.link.offers import Remote, read_offer
from tidegate.federation.link.records import origin_of
from tidegate.federation.link.signing import Verifier, read_signed_offer
from tidegate.registry import Link
from tidegate.registry.links import ANY

Keys = Mapping[str, tuple[OriginKey, ...]]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an offer is not believed."""

    kind: str
    """`name`, `conflict` or `signature`: what it is counted under."""
    reason: str


class Trust:
    """Decides what is believed of neighbours. The event loop alone asks it, but for verifiers."""

    def __init__(self, me: str, settled: Keys, clock: Callable[[], float] = time.time) -> None:
        """`settled` are the pinned keys of the profile: none of the registry takes their place."""
        self._me, self._settled, self._clock = me, settled, clock
        self._texts: Mapping[str, str] = {}
        self._keys: Keys = dict(settled)
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
        keys = self._keys.get(origin_of(service)[1])
        return None if keys is None else Verifier(keys, self._clock)

    # Offers ------------------------------------------------------------------------------------

    def judge(
        self, said: Mapping[str, Any], link: Link, links: Collection[str], holder: Callable[[str], str | None]
    ) -> tuple[Remote, Refused | None]:
        """Read an offer of a neighbour, and say why it is not believed; None: it is.

        `links` are the brokers that we are linked to; `holder` says over which link a broker's services are known.
        """
        offer = read_offer(said, link.name)
        origin, is_direct = offer.origin, offer.origin == link.name
        keys = self._keys.get(origin)
        if origin == self._me:
            return offer, Refused("name", f"{origin} is this broker")
        if not is_direct and origin in links:
            return offer, Refused("name", f"there is a link to {origin}: its services are believed from there alone")
        if not is_direct and keys is None and not {origin, ANY} & set(link.transit):
            allow = f"tidegate link change {link.name} --transit {origin}"
            return offer, Refused("name", f"{link.name} may not pass on services of {origin}; to allow it: {allow}")
        if keys is not None:
            try:
                offer = self._signed(said, offer, keys, is_direct=is_direct)
            except FederationError as problem:
                return offer, Refused("signature", f"keys of {origin} are pinned, and {problem}")
        held = holder(origin)
        if held is not None and held != link.name:
            return offer, Refused("conflict", f"the services of {origin} are known over the link to {held}")
        return _with_access(offer, link), None

    def _signed(
        self, said: Mapping[str, Any], offer: Remote, keys: Collection[OriginKey], *, is_direct: bool
    ) -> Remote:
        """Return the offer as its origin has signed it; what was said beside that does not count."""
        name = offer.service.name
        payload, issued = read_signed_offer(said, tuple(keys), self._clock())
        found = replace(read_offer(payload, offer.via), said=said)
        if found.service.name != name:
            raise FederationError(f"the signature is that of {found.service.name!r}")
        if not is_direct and not found.onward:
            raise FederationError(f"{found.origin} does not let {name!r} be passed on")
        if issued < self._issued.get(name, 0):
            raise FederationError(f"a newer offer of {name!r} was seen before")
        self._issued[name] = issued
        return found


def _with_access(offer: Remote, link: Link) -> Remote:
    """Return the offer for guests only where the link says so, whatever its origin claims."""
    if offer.service.access.to != "public" or {offer.service.name, ANY} & set(link.public):
        return offer
    return replace(offer, service=replace(offer.service, access=replace(offer.service.access, to="keys")))
