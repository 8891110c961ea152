"""Calls about durable subscriptions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tidegate.client.async_client.connection import AsyncGatewayConnection
from tidegate.client.async_client.subscription import AsyncSubscription
from tidegate.client.requests import subscriptions as subscription_requests
from tidegate.client.requests.request import Since
from tidegate.client.subscription_session import SubscriptionSession, SubscriptionTarget
from tidegate.client.values import Format, Notice

if TYPE_CHECKING:
    from tidegate.filters import Filter


class AsyncSubscriptionCalls:
    """The methods of `AsyncClient` about durable subscriptions."""

    _connection: AsyncGatewayConnection

    async def subscriptions(self, service: str) -> list[dict[str, Any]]:
        """Return the durable subscriptions of a service that the caller may see."""
        document = await self._connection.send(subscription_requests.list_of(service))
        subscriptions: list[dict[str, Any]] = document["subscriptions"]
        return subscriptions

    async def subscription(self, id: str) -> dict[str, Any]:  # noqa: A002 - public name
        """Return a durable subscription."""
        return await self._connection.send(subscription_requests.get(id))

    async def create_subscription(
        self,
        service: str,
        filter: str | Filter | None = None,  # noqa: A002 - public name
        *,
        params: Sequence[Any] = (),
        webhook: str | Mapping[str, Any] | None = None,
        deliver: str | Mapping[str, Any] | None = None,
        cursor: str | None = None,
        since: Since | None = None,
        select: str | Sequence[str] | None = None,
        format: Format = "cloudevents",  # noqa: A002 - public name
        every: float | None = None,
        key: str | None = None,
        idle: float | None = None,
        description: str = "",
    ) -> dict[str, Any]:
        """Create a durable subscription and return it with its `id`. Read it with `consume`, or set a `webhook`.

        `webhook` is a URL, or a mapping with `url`, `batch` and `handshake`. Only this answer has the webhook's secret.
        `deliver` is any other way of delivery, as the API takes it: `"pull"`, or a push target by its kind.
        """
        request = subscription_requests.create(
            service, filter, params, webhook, deliver, cursor, since, select, format, every, key, idle, description
        )
        return await self._connection.send(request)

    async def change_subscription(self, id: str, *, version: int | None = None, **fields: Any) -> dict[str, Any]:  # noqa: A002
        """Change fields of a durable subscription and return it. It takes effect at once for its consumers.

        The fields are those of `create_subscription` except `cursor` and `since`; None resets a field to its default.
        With a `version` it raises Refused (412) if the subscription has another version by now.
        """
        return await self._connection.send(subscription_requests.change(id, version, fields))

    async def delete_subscription(self, id: str) -> None:  # noqa: A002 - public name
        """Delete a durable subscription and its dead letters. Its consumers get `SubscriptionEnded` or `Refused`."""
        await self._connection.send(subscription_requests.delete(id))

    async def enable_subscription(self, id: str) -> dict[str, Any]:  # noqa: A002 - public name
        """Resume the delivery of a disabled subscription from its cursor."""
        return await self._connection.send(subscription_requests.enable(id))

    async def renew_subscription(self, id: str) -> dict[str, Any]:  # noqa: A002 - public name
        """Continue a webhook for another period, with the rights of the caller's current token; for its owner."""
        return await self._connection.send(subscription_requests.renew(id))

    async def adopt_subscription(self, id: str, owner: str | None = None) -> dict[str, Any]:  # noqa: A002 - public name
        """Make the API key with the id `owner`, or the caller, the owner of a durable subscription; for admins."""
        return await self._connection.send(subscription_requests.adopt(id, owner))

    async def explain(self, id: str, event: Mapping[str, Any] | str | None = None) -> dict[str, Any]:  # noqa: A002
        """Explain the filter of a durable subscription, and why an event, or the event with an id, matches or not."""
        return await self._connection.send(subscription_requests.explain(id, event))

    async def dead_letters(self, id: str, *, after: int = 0, most: int = 100) -> list[dict[str, Any]]:  # noqa: A002
        """Return at most `most` events that a webhook did not accept, the oldest first, with ids above `after`."""
        document = await self._connection.send(subscription_requests.dead_letters(id, after, most))
        letters: list[dict[str, Any]] = document["dead_letters"]
        return letters

    async def redeliver(self, id: str, ids: Sequence[int] | Literal["all"] = "all") -> dict[str, Any]:  # noqa: A002
        """Send dead letters again, and return which were `delivered`, `failed` and `untried`."""
        return await self._connection.send(subscription_requests.redeliver(id, ids))

    def consume(
        self,
        id: str,  # noqa: A002 - public name
        *,
        auto_ack: bool = True,
        latest: str | None = None,
        on_notice: Callable[[Notice], None] | None = None,
    ) -> AsyncSubscription:
        """Return an iterator over the events of a durable subscription from its cursor; see `AsyncSubscription`.

        With `auto_ack` asking for the next event acknowledges the events before it, with at most one request per second
        while received events are waiting. The end of `async with` without an error acknowledges the last event. Without
        `auto_ack` call `ack`. The next `consume` delivers unacknowledged events again. `latest` delivers only the
        newest waiting event of each value of this attribute.
        """
        target = SubscriptionTarget.of_durable(id, latest, auto_ack=auto_ack)
        session = SubscriptionSession(target, self._connection.reconnect, on_notice, random.random, time.monotonic)
        return AsyncSubscription(self._connection, session)
