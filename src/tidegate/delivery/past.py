"""Events from before what the log has: another broker's history, which is asked for a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.delivery.latest import Piece
from tidegate.filters import Filter
from tidegate.logs import Cursor

if TYPE_CHECKING:
    from tidegate.delivery.hub import Start
    from tidegate.delivery.subscriber import Subscriber


class Past(Protocol):
    """What one subscriber has yet to be given of it."""

    async def piece(self) -> Piece | None:
        """The next events; None: what follows is in the log. A `TidegateError`: not now."""

    def gave(self, count: int) -> Cursor:
        """So many of them were given: the place behind them."""

    @property
    def joint(self) -> Cursor | None:
        """Where the log goes on behind the last of them; None: with its beginning."""


class Pasts(Protocol):
    """Knows which places are not in the log."""

    async def place(self, service: str, start: Start, filter_: Filter | None) -> Cursor | None:
        """The place of a start, if it is not in the log, for somebody who wants what a filter matches."""

    def now(self, subscriber: Subscriber) -> Cursor | None:
        """The place of this moment, for one who begins with what comes next, if the log will not have all of that."""

    def has(self, place: Cursor | None) -> bool:
        """Whether a place is not in the log."""

    def lacks(self, subscriber: Subscriber) -> bool:
        """Whether the log has not all that a subscriber wants from its place on."""

    async def settle(self, subscriber: Subscriber) -> None:
        """Return when the log will have all that a subscriber wants, or that takes too long."""

    def is_part(self, service: str) -> bool:
        """Whether the log has but a part of what a service keeps."""

    def open(self, subscriber: Subscriber) -> Past:
        """What is to be given to a subscriber, from its place on."""


class NoPasts:
    """Where all there is is in the log."""

    async def place(self, service: str, start: Start, filter_: Filter | None) -> Cursor | None:  # noqa: ARG002 - none has
        """None."""
        return None

    def now(self, subscriber: Subscriber) -> Cursor | None:  # noqa: ARG002 - it will
        """None."""
        return None

    def has(self, place: Cursor | None) -> bool:  # noqa: ARG002 - it is in the log
        """No."""
        return False

    def lacks(self, subscriber: Subscriber) -> bool:  # noqa: ARG002 - it has
        """No."""
        return False

    async def settle(self, subscriber: Subscriber) -> None:
        """At once."""

    def is_part(self, service: str) -> bool:  # noqa: ARG002 - it has all
        """No."""
        return False

    def open(self, subscriber: Subscriber) -> Past:
        """Never asked for."""
        raise AssertionError(subscriber)
