"""Consuming a durable subscription, alike by SSE, pages and WebSocket: where it goes on, and what is refused."""

from __future__ import annotations

from tidegate.errors import CursorError
from tidegate.gateway.http.problems import Problem
from tidegate.gateway.subscriptions.durable import Durable
from tidegate.logs import Cursor
from tidegate.registry import RegisteredSubscription


def need_pull(found: RegisteredSubscription) -> None:
    """Refuse what is not to be consumed."""
    id_ = found.subscription.id
    target = found.subscription.push_target
    if target is not None:
        raise conflict(f"{id_!r} is delivered by {target.kind}: change its deliver to 'pull' to consume it here")
    if found.state != "active":
        call = "enable" if found.state == "disabled" else "renew"
        raise conflict(f"{id_!r} is {found.state}: {found.reason}; POST /v1/subscriptions/{id_}/{call}")


async def begin(
    durable: Durable, found: RegisteredSubscription, behind: str | None, cursor: str | None, after: str | None = None
) -> Cursor | None:
    """Where a consumer goes on; what it has received it acknowledges by saying so.

    `behind` is what a browser says by itself, `cursor` what somebody has written; of `after` nothing is acknowledged.
    """
    if cursor and after:
        raise Problem(400, "bad-parameter", "A parameter can't be used", "expected cursor or after, not both")
    if after and not behind:
        return Cursor.from_text(after)
    said = behind or cursor
    if not said:
        stored = durable.cursor(found)
        return None if stored is None else Cursor.from_text(stored)
    given = Cursor.from_text(said)
    try:
        await durable.acknowledge(found.subscription.id, given)
    except CursorError:
        # A browser says what it saw last, for ever: of a stream that was made anew it is told a gap.
        if behind is None:
            raise
    return given


def conflict(detail: str) -> Problem:
    """What a subscription is not there for."""
    return Problem(409, "conflict", "The subscription won't do that", detail)
