"""Chooses the gateway that delivers a push subscription, by rendezvous hashing.

Every gateway computes the same choice from the same peers, without communication. If a gateway is added or removed,
only its own subscriptions move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from tidegate.model import ServiceName
from tidegate.subscriptions import SubscriptionRecord


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway that delivers push subscriptions."""

    id: str
    has_semantics: bool = False
    """True if it evaluates filters with ~."""
    has_links: bool = False
    """True if it holds the links to other brokers, and so can read the history of their services."""


def choose_peer(subscription: SubscriptionRecord, peers: Collection[Peer]) -> str:
    """Return the id of the gateway that delivers a subscription. `peers` has at least one.

    Services of other brokers go to the gateway that holds the links, and filters with ~ to one that has semantics, if
    there is one.

    >>> record = SubscriptionRecord("sub_1", "gps", "")
    >>> choose_peer(record, [Peer("a"), Peer("b"), Peer("c")]) == choose_peer(record, [Peer("c"), Peer("b"), Peer("a")])
    True
    """
    if ServiceName.parse(subscription.service).is_remote:
        peers = [peer for peer in peers if peer.has_links] or peers
    if "~" in subscription.filter:
        peers = [peer for peer in peers if peer.has_semantics] or peers
    return max(peers, key=lambda peer: (_weight(peer.id, subscription.id), peer.id)).id


def _weight(peer: str, subscription: str) -> bytes:
    return hashlib.blake2b(f"{peer} {subscription}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
