"""Push delivery: the gateway sends the events of durable subscriptions to their targets, such as webhooks.

`transport` says what a push transport must do, `worker` delivers one subscription, `pool` runs a worker for each
subscription that this gateway has a lease on. A target that does not answer delays only its own subscription.

To add a push target: a `PushTarget` in `tidegate.subscriptions`, listed in `PUSH_TARGETS`, says which fields it has and
how they are checked and shown. The module of the same name in `tidegate.gateway.transports` sends.
"""
