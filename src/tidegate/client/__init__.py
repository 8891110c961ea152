"""Clients of the HTTP API, blocking (`Client`) and for asyncio (`AsyncClient`).

Knows only the API: the gateway interprets filters and services, and the client raises its problem documents as errors.
Stores nothing on disk: a caller that wants to continue later stores the cursor.
"""

from tidegate.client.async_client.client import AsyncClient
from tidegate.client.async_client.history import AsyncHistory
from tidegate.client.async_client.subscription import AsyncSubscription
from tidegate.client.errors import (
    ConnectionLost,
    Missed,
    PublishError,
    Refused,
    SubscriptionEnded,
    Unavailable,
    Unreachable,
)
from tidegate.client.reconnect import Reconnect
from tidegate.client.sync_client.client import Client
from tidegate.client.sync_client.history import History
from tidegate.client.sync_client.subscription import Subscription
from tidegate.client.values import Event, Notice, Page, Receipt, Refusal
from tidegate.errors import ClientError

__all__ = [
    "AsyncClient",
    "AsyncHistory",
    "AsyncSubscription",
    "Client",
    "ClientError",
    "ConnectionLost",
    "Event",
    "History",
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
