"""Events from before what the log has: another broker's history, which is asked for a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.delivery.latest import Piece
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

    async def prepare(self, service: str) -> None:
        """Somebody asks for a place of a service."""

    def place(self, service: str, start: Start) -> Cursor | None:
        """The place of a start, if it is not in the log."""

    def has(self, place: Cursor | None) -> bool:
        """Whether a place is not in the log."""

    def open(self, subscriber: Subscriber) -> Past:
        """What is to be given to a subscriber, from its place on."""


class NoPasts:
    """Where all there is is in the log."""

    async def prepare(self, service: str) -> None:
        """Nothing."""

    def place(self, service: str, start: Start) -> Cursor | None:  # noqa: ARG002 - no service has one
        """None."""
        return None

    def has(self, place: Cursor | None) -> bool:  # noqa: ARG002 - it is in the log
        """No."""
        return False

    def open(self, subscriber: Subscriber) -> Past:
        """Never asked for."""
        raise AssertionError(subscriber)
