"""A subscription: a filter and a cursor on a service's output, and how to deliver. Values and rules, no I/O."""

from tidegate.subscriptions.subscription import Deliver, Format, Pull, Subscription, Webhook, new_id

__all__ = ["Deliver", "Format", "Pull", "Subscription", "Webhook", "new_id"]
