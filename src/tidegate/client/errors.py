"""What can go wrong between a client and a gateway, by what may be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.errors import ClientError

if TYPE_CHECKING:
    from tidegate.client.values import Notice, Receipt


class Unreachable(ClientError):  # noqa: N818 - reads as the state it reports
    """Nobody answers at the URL; nothing was sent."""


class ConnectionLost(ClientError):  # noqa: N818 - reads as the state it reports
    """The answer did not come, or not all of it; what was asked for may have been done or not."""


class Refused(ClientError):  # noqa: N818 - reads as the state it reports
    """The gateway won't do it, and asking again won't help."""


class Unavailable(ClientError):  # noqa: N818 - reads as the state it reports
    """The gateway can't do it now; asking again may help."""

    def __init__(
        self,
        message: str,
        status: int | None = None,
        document: Mapping[str, object] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, status, document)
        self.retry_after_s = retry_after_s
        """When, if the gateway said so."""


class PublishError(ClientError):
    """Not all events were published. The reason is its cause; `receipt` tells of those that were.

    In mode `all` each batch is taken as a whole or not at all; those before the one that failed are in the log.
    """

    receipt: Receipt


class Missed(ClientError):  # noqa: N818 - reads as the state it reports
    """Events were missed: the cursor is older than what the service keeps.

    The subscription is where the next events are: whoever goes on with it gets them.
    """

    notice: Notice


class SubscriptionEnded(ClientError):  # noqa: N818 - reads as the state it reports
    """The gateway can't go on with a subscription: its service is gone, or its filter fits it no more."""
