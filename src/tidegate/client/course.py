"""A subscription from connection to connection, without I/O.

Two shells drive it, one that blocks and one that awaits: they ask for the next
event; while there is none, they do what it wants: connect, read, or wait.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidegate.client import durable
from tidegate.client.errors import Missed, SubscriptionEnded, Unavailable, Unreachable
from tidegate.client.http import SSE, Asked, Since, in_a_header, service_path, since_text, wanted
from tidegate.client.sse import Block, Parser
from tidegate.client.values import Event, Format, Notice, event, page
from tidegate.errors import ClientError
from tidegate.model import units
from tidegate.timing import Backoff

if TYPE_CHECKING:
    from tidegate.filters import Filter


@dataclass(frozen=True, slots=True)
class Reconnect:
    """How a lost connection is made again."""

    first_s: float = 1.0
    """Before the first attempt, until the server says otherwise (`retry:`); doubles with each that fails.
    Half of every wait is random: those who lost a gateway together don't come back together."""
    most_s: float = 30.0
    """Between two attempts at most."""
    silence_s: float = 45.0
    """Without a byte for so long, the connection is taken for dead: a gateway's heart beats every 15 s."""


@dataclass(frozen=True)
class Wanted:
    """What is subscribed to."""

    name: str
    """A service, or, where the path says so, a durable subscription."""
    params: Sequence[tuple[str, str]]
    """The query without the place to begin."""
    since: str
    """Empty: where the gateway begins by itself."""
    cursor: str | None
    format: Format | None
    """None: as the events themselves say."""
    is_durable: bool = False
    acks: bool = False
    """Whether what was handed out is acknowledged when the next event is asked for."""

    @property
    def path(self) -> str:
        """Where its events are."""
        return durable.path(self.name, "events") if self.is_durable else service_path(self.name, "events")

    @classmethod
    def of(
        cls,
        service: str,
        filter_: str | Filter | None,
        params: Sequence[Any],
        cursor: str | None,
        since: Since | None,
        latest: str | None,
        select: str | Sequence[str] | None,
        format_: Format,
        every: float | None,
        key: str | None,
        idle: float | None,
    ) -> Wanted:
        """From what a client is called with; refused where it can't be sent."""
        query = wanted(filter_, params, select, format_)
        lengths = [(name, f"{value:g}s") for name, value in (("every", every), ("idle", idle)) if value is not None]
        texts = [(name, value) for name, value in (("latest", latest), ("key", key)) if value is not None]
        if cursor is not None:
            in_a_header("cursor", cursor)
        begin = since_text("now" if since is None else since) if since is not None or latest is None else ""
        return cls(service, [*query, *texts, *lengths], begin, cursor, format_)

    @classmethod
    def of_durable(cls, id_: str, latest: str | None, *, acks: bool) -> Wanted:
        """A durable subscription: it says all else itself, and where it goes on."""
        query = [] if latest is None else [("latest", latest)]
        return cls(id_, query, "", None, None, is_durable=True, acks=acks)


NOT_OF_PAGES = ("idle", "every", "key", "latest")
"""What a page that just says where `now` is does not take."""
ACK_S = 1.0
"""Between two acknowledgements while events come without a pause."""


class Course:
    """Where a subscription is, and what is to be done next.

    Nothing is missed or doubled by a lost connection: every event has its cursor
    with it, and the next connection begins behind the last that came whole. As
    `now` and `10m` are other moments later, the place of `now` is asked for first,
    and a length of time grows until there is a cursor.
    """

    def __init__(
        self,
        wanted: Wanted,
        settings: Reconnect,
        on_notice: Callable[[Notice], None] | None,
        random: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """`random` gives numbers from 0 to 1, `clock` seconds."""
        self._wanted, self._settings, self._on_notice = wanted, settings, on_notice
        self._random, self._clock = random, clock
        self._begun_s: float | None = None
        self.cursor = wanted.cursor or None
        """Behind what was handed out."""
        self._read = wanted.cursor or ""
        """Behind what was read."""
        self._items: deque[Event | Notice | str | ClientError] = deque()
        self._parser = Parser()
        self._retry_s = settings.first_s
        self._failures = 0
        self._was_reached = False
        self._done = self._acked = self.cursor
        self._acked_s = clock()

    # What comes ----------------------------------------------------------------------

    def next(self) -> Event | None:
        """The next event that was read, if there is one; notices before it are told."""
        while self._items:
            item = self._items.popleft()
            match item:
                case ClientError():
                    raise item
                case Event():
                    self.cursor = item.cursor
                    return item
                case Notice():
                    self.cursor = item.cursor or self.cursor
                    self._tell(item)
                case _:
                    self.cursor = item
        return None

    def _tell(self, notice: Notice) -> None:
        if self._on_notice is not None:
            self._on_notice(notice)
        elif notice.kind == "gap":
            error = Missed(f"events of {self._wanted.name!r} were missed: {_reason(notice.said)}")
            error.notice = notice
            raise error

    def feed(self, data: bytes) -> None:
        """Take bytes of the connection."""
        self._failures = 0
        for block in self._parser.feed(data):
            self._items.append(self._understood(block))
        if self._parser.retry_ms is not None:
            self._retry_s = self._parser.retry_ms / 1_000

    def _understood(self, block: Block) -> Event | Notice | str | ClientError:
        self._read = block.id
        if block.data is None:
            return block.id
        try:
            return self._read_block(block, block.data)
        except (ValueError, KeyError, TypeError, AttributeError):
            return SubscriptionEnded(f"expected an event of {self._wanted.name!r}, not {block.data!r:.200}")

    def _read_block(self, block: Block, data: str) -> Event | Notice | str | ClientError:
        match block.name:
            case "message":
                return event(data, block.id, self._wanted.format)
            case "gap" | "changed" | "idle" | "latest":
                return Notice(block.name, block.id or None, json.loads(data))
            case "error":
                said = json.loads(data)
                return SubscriptionEnded(f"{self._wanted.name!r} can't go on: {said.get('detail')}", None, said)
        return block.id  # of a newer gateway than this client: nothing that it must know

    # Connections -----------------------------------------------------------------------

    def request(self) -> Asked:
        """What to ask for next: a page where the place is to be known first, else the stream."""
        if self._begun_s is None:
            self._begun_s = self._clock()
        path, params = self._wanted.path, list(self._wanted.params)
        if self._read and self._wanted.is_durable:  # the header would acknowledge what nobody has dealt with yet
            params = [each for each in params if each[0] != "latest"]
            return Asked("GET", path, [*params, ("after", self._read)], {"accept": SSE})
        if self._read:
            return Asked("GET", path, params, {"accept": SSE, "last-event-id": self._read})
        if self.wants_place:
            # A page of one has the cursor of its event, if something comes just now.
            params = [each for each in params if each[0] not in NOT_OF_PAGES]
            return Asked("GET", path, [*params, ("from", "now"), ("max", "1")])
        since = self._since()
        return Asked("GET", path, [*params, ("from", since)] if since else params, {"accept": SSE})

    @property
    def wants_place(self) -> bool:
        """Whether the next request is for a page."""
        return not self._read and self._wanted.since == "now"

    def _since(self) -> str:
        ago_s = units.seconds(self._wanted.since)
        if ago_s is None or self._begun_s is None:
            return self._wanted.since
        return f"{ago_s + self._clock() - self._begun_s:.3f}s"

    # Acknowledging --------------------------------------------------------------------

    def ack_due(self) -> Asked | None:
        """The next event is asked for: what was handed out is dealt with. What to say of it now, if anything.

        Not of every event, each of which would wait for the registry: when there is nothing else to do, or
        from time to time.
        """
        self.finish()
        is_late = self._clock() - self._acked_s >= ACK_S
        return self.ack_rest() if not self._items or is_late else None

    def finish(self) -> None:
        """All that was handed out is dealt with."""
        self._done = self.cursor

    def ack_rest(self) -> Asked | None:
        """What is dealt with and not acknowledged yet."""
        if not self._wanted.acks or self._done is None or self._done == self._acked:
            return None
        return durable.acknowledge(self._wanted.name, self._done)

    def ack(self, what: Event | str | None) -> Asked:
        """Acknowledge all up to an event or a cursor; without one: all that was handed out."""
        if not self._wanted.is_durable:
            raise ClientError(f"a subscription to {self._wanted.name!r} keeps no place: store its cursor yourself")
        cursor = what.cursor if isinstance(what, Event) else what or self.cursor
        if cursor is None:
            raise ClientError("ack: expected an event with a cursor, as none was handed out yet")
        self._done = cursor
        return durable.acknowledge(self._wanted.name, cursor)

    def acked(self) -> None:
        """What was dealt with is stored."""
        self._acked, self._acked_s = self._done, self._clock()

    def not_acked(self, error: ClientError) -> None:
        """It could not be stored now: it comes again, or is acknowledged the next time. What won't change is raised."""
        self._acked_s = self._clock()
        if error.status is not None and not isinstance(error, Unavailable):
            raise error

    def placed(self, said: dict[str, Any]) -> None:
        """Take the page."""
        self._was_reached = True
        found = page(said, self._wanted.format)
        if found.cursor is None:  # no output yet: whatever comes is new
            self._wanted = replace(self._wanted, since="beginning")
            return
        self._read = found.cursor
        self._items.extend(found.events)
        if not found.events:
            self.cursor = found.cursor

    def opened(self) -> None:
        """The stream begins."""
        self._was_reached = True
        self._parser = Parser(self._read)

    def lost(self, error: ClientError) -> float:
        """There is no connection any more: how long to wait before the next. What won't change is raised."""
        is_passing = not isinstance(error, Unreachable) or self._was_reached
        if error.status is not None:
            is_passing = isinstance(error, Unavailable)
        if not is_passing:
            raise error
        self._failures += 1
        wait_s = Backoff(self._retry_s, self._settings.most_s).delay_s(self._failures, self._random)
        if isinstance(error, Unavailable) and error.retry_after_s is not None:
            wait_s += error.retry_after_s
        self._tell(Notice("lost", self.cursor, {"reason": str(error), "wait_s": round(wait_s, 3)}))
        return wait_s


def _reason(said: Any) -> str:
    more = {name: value for name, value in said.items() if name != "reason"}
    return f"{said.get('reason', 'the gateway does not say why')}" + (f" ({json.dumps(more)})" if more else "")
