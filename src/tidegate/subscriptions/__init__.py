"""A subscription: a filter and a cursor on a service's output, and how to deliver. Values and rules, no I/O."""

from tidegate.subscriptions.push_target import PushTarget
from tidegate.subscriptions.rules import BEGINNINGS, PUSH_TARGETS, changed, compiled, wants_handshake
from tidegate.subscriptions.subscription import Deliver, Format, Grant, Pull, SubscriptionRecord, new_id
from tidegate.subscriptions.webhook import MAX_SECRETS, Webhook, new_secret

__all__ = [
    "BEGINNINGS",
    "MAX_SECRETS",
    "PUSH_TARGETS",
    "Deliver",
    "Format",
    "Grant",
    "Pull",
    "PushTarget",
    "SubscriptionRecord",
    "Webhook",
    "changed",
    "compiled",
    "new_id",
    "new_secret",
    "wants_handshake",
]
