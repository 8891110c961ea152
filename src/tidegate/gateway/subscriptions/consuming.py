"""The rules for consuming a durable subscription, which SSE, polling and WebSocket share."""

from __future__ import annotations

from tidegate.errors import CursorError
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.subscriptions.durable import Durable
from tidegate.logs import Cursor
from tidegate.registry import RegisteredSubscription


def need_pull(registered: RegisteredSubscription) -> None:
    """Raise `HttpProblem` (409) if a subscription is delivered by webhook or is not active."""
    id_ = registered.subscription.id
    target = registered.subscription.push_target
    if target is not None:
        raise conflict(f"{id_!r} is delivered by {target.kind}: change its deliver to 'pull' to consume it here")
    if registered.state != "active":
        call = "enable" if registered.state == "disabled" else "renew"
        raise conflict(f"{id_!r} is {registered.state}: {registered.reason}; POST /v1/subscriptions/{id_}/{call}")


async def begin(
    durable: Durable,
    registered: RegisteredSubscription,
    last_event_id: str | None,
    cursor: str | None,
    after: str | None = None,
) -> Cursor | None:
    """Return the position where a consumer continues; None: at the start of the stream.

    `last_event_id` is what an EventSource sends when it reconnects, `cursor` what the client has set: both acknowledge
    all events up to them. `after` acknowledges nothing. Without any of them the stored cursor is used.
    """
    if cursor and after:
        raise HttpProblem(400, "bad-parameter", "A parameter can't be used", "expected cursor or after, not both")
    if after and not last_event_id:
        return Cursor.from_text(after)
    text = last_event_id or cursor
    if not text:
        stored = durable.cursor(registered)
        return None if stored is None else Cursor.from_text(stored)
    position = Cursor.from_text(text)
    try:
        await durable.acknowledge(registered.subscription.id, position)
    except CursorError:
        # An EventSource repeats its last id forever. If the stream was created again, it gets a gap notice.
        if last_event_id is None:
            raise
    return position


def conflict(detail: str) -> HttpProblem:
    """Return the `HttpProblem` (409) for a call that a subscription does not support in its state."""
    return HttpProblem(409, "conflict", "The subscription won't do that", detail)
