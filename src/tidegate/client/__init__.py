"""Our HTTP API from Python, sync and async.

Knows the wire only: what filters and services mean is the gateway's business, and
what is wrong with them comes back as its problem documents. Keeps nothing on disk:
where to go on is a cursor, which whoever subscribes may store.
"""

from tidegate.client.awaiting import AsyncClient, AsyncSubscription
from tidegate.client.blocking import Client, Subscription
from tidegate.client.course import Reconnect
from tidegate.client.errors import (
    ConnectionLost,
    Missed,
    PublishError,
    Refused,
    SubscriptionEnded,
    Unavailable,
    Unreachable,
)
from tidegate.client.values import Event, Notice, Page, Receipt, Refusal
from tidegate.errors import ClientError

__all__ = [
    "AsyncClient",
    "AsyncSubscription",
    "Client",
    "ClientError",
    "ConnectionLost",
    "Event",
    "Missed",
    "Notice",
    "Page",
    "PublishError",
    "Receipt",
    "Reconnect",
    "Refusal",
    "Refused",
    "Subscription",
    "SubscriptionEnded",
    "Unavailable",
    "Unreachable",
]
