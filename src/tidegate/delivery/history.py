"""Events that the log does not have: the history of another broker's service, fetched page by page.

The federation implements these protocols; `NoHistory` is for a gateway without links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.delivery.latest import Piece
from tidegate.filters import Filter
from tidegate.logs import Cursor

if TYPE_CHECKING:
    from tidegate.delivery.start import Start
    from tidegate.delivery.subscriber import Subscriber


class HistoryReader(Protocol):
    """Reads the history of one subscriber, from its cursor to where the log continues."""

    async def next_page(self) -> Piece | None:
        """Return the next events; None if the log has all that follow.

        Raises `TidegateError` if the other broker does not answer now; the caller tries again later.
        """

    def advance(self, count: int) -> Cursor:
        """Note that the first `count` events of the page were sent, and return the cursor behind them."""

    @property
    def log_cursor(self) -> Cursor | None:
        """Where to continue in the log after the last page; None: at its beginning."""


class HistoryProvider(Protocol):
    """Knows which events the log does not have. All methods run on the event loop."""

    async def start_cursor(self, service: str, start: Start, filter_: Filter | None) -> Cursor | None:
        """Return the cursor of a start position in the history; None if the log has all matching events from there."""

    def now_cursor(self, subscriber: Subscriber) -> Cursor | None:
        """Return the cursor of this moment; None if the log will have all matching events from now on."""

    def is_historical(self, cursor: Cursor | None) -> bool:
        """Return True if the cursor is a position in the history, not in the log."""

    def needs_history(self, subscriber: Subscriber) -> bool:
        """Return True if the log does not have all matching events behind the subscriber's position."""

    async def wait_for_sync(self, subscriber: Subscriber) -> None:
        """Return when the log gets all matching events from now on, or after a timeout."""

    def is_partial(self, service: str) -> bool:
        """Return True if the log has only the events of the service that were asked for."""

    def open(self, subscriber: Subscriber) -> HistoryReader:
        """Return a reader that starts at the subscriber's cursor."""


class NoHistory:
    """The provider of a gateway without links: the log has every event."""

    async def start_cursor(self, service: str, start: Start, filter_: Filter | None) -> Cursor | None:  # noqa: ARG002
        """Return None."""
        return None

    def now_cursor(self, subscriber: Subscriber) -> Cursor | None:  # noqa: ARG002 - the log will have them
        """Return None."""
        return None

    def is_historical(self, cursor: Cursor | None) -> bool:  # noqa: ARG002 - each is in the log
        """Return False."""
        return False

    def needs_history(self, subscriber: Subscriber) -> bool:  # noqa: ARG002 - the log has them
        """Return False."""
        return False

    async def wait_for_sync(self, subscriber: Subscriber) -> None:
        """Return at once."""

    def is_partial(self, service: str) -> bool:  # noqa: ARG002 - of each the log has all
        """Return False."""
        return False

    def open(self, subscriber: Subscriber) -> HistoryReader:
        """Never called, as `needs_history` is always False."""
        raise AssertionError(subscriber)
