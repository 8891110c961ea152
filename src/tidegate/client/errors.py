"""The errors of a client, by what the caller can do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.errors import ClientError

if TYPE_CHECKING:
    from tidegate.client.values import Notice, Receipt


class Unreachable(ClientError):  # noqa: N818 - reads as the state it reports
    """No connection to the URL could be made; the request was not sent."""


class ConnectionLost(ClientError):  # noqa: N818 - reads as the state it reports
    """The response is missing or incomplete. The gateway may have handled the request."""


class Refused(ClientError):  # noqa: N818 - reads as the state it reports
    """The gateway refused the request. A retry fails again."""


class Unavailable(ClientError):  # noqa: N818 - reads as the state it reports
    """The gateway can't handle the request now. A retry may succeed."""

    def __init__(
        self,
        message: str,
        status: int | None = None,
        document: Mapping[str, object] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, status, document)
        self.retry_after_s = retry_after_s
        """The delay that the gateway asked for, if it did."""


class PublishError(ClientError):
    """Not all events were published. `receipt` counts those that were; the cause is chained.

    In mode `all` a batch is accepted as a whole or not at all. The batches before the failed one are in the log.
    """

    receipt: Receipt


class Missed(ClientError):  # noqa: N818 - reads as the state it reports
    """Events were missed: the cursor is older than the first event that the service still has.

    The subscription stays open, and its next event is the first one after the gap.
    """

    notice: Notice


class SubscriptionEnded(ClientError):  # noqa: N818 - reads as the state it reports
    """The gateway has ended a subscription: its service was removed, or its filter does not fit the new schema."""
