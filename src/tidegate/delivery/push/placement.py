"""Says which of several gateways delivers a push subscription, by rendezvous hashing.

Every gateway computes the same answer from the same peers, and asks nobody. When a gateway comes or goes, only the
subscriptions that it gets or had move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from tidegate.subscriptions import SubscriptionRecord


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway that delivers push subscriptions."""

    id: str
    has_semantics: bool = False
    """True if it evaluates filters with ~."""


def choose_peer(subscription: SubscriptionRecord, peers: Collection[Peer]) -> str:
    """Return the id of the gateway that delivers a subscription: one of `peers`, of which there is at least one.

    Filters with ~ go to a gateway that has semantics, if there is one.

    >>> record = SubscriptionRecord("sub_1", "gps", "")
    >>> choose_peer(record, [Peer("a"), Peer("b"), Peer("c")]) == choose_peer(record, [Peer("c"), Peer("b"), Peer("a")])
    True
    """
    if "~" in subscription.filter:
        peers = [peer for peer in peers if peer.has_semantics] or peers
    return max(peers, key=lambda peer: (_weight(peer.id, subscription.id), peer.id)).id


def _weight(peer: str, subscription: str) -> bytes:
    return hashlib.blake2b(f"{peer} {subscription}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
