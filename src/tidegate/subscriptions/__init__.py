"""A subscription: a filter and a cursor on a service's output, and how to deliver. Values and rules, no I/O."""

from tidegate.subscriptions.rules import BEGINNINGS, MOST_SECRETS, changed, compiled, new_secret, wants_handshake
from tidegate.subscriptions.subscription import Deliver, Format, Grant, Pull, Subscription, Webhook, new_id

__all__ = [
    "BEGINNINGS",
    "MOST_SECRETS",
    "Deliver",
    "Format",
    "Grant",
    "Pull",
    "Subscription",
    "Webhook",
    "changed",
    "compiled",
    "new_id",
    "new_secret",
    "wants_handshake",
]
