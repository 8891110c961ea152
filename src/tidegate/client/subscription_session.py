"""The protocol of one subscription across reconnects, without I/O.

`AsyncSubscription` and `Subscription` drive a session in the same way: they ask for the next event and, while there is
none, connect, read or wait as the session says.

    next_event() ─ None ─▶ request() ─▶ position page ──▶ position_received() ─┐
        ▲                     ▲    └──▶ event stream ──▶ stream_opened()       │
        │                     └────────────────────────────────────────────────┘
        └── feed(bytes) ◀── reading ── connection_lost() ─▶ backoff ─▶ request()
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidegate.client.errors import Missed, SubscriptionEnded, Unavailable, Unreachable
from tidegate.client.reconnect import Reconnect
from tidegate.client.requests import subscriptions as subscription_requests
from tidegate.client.requests.events import event_params
from tidegate.client.requests.request import SSE, ApiRequest, Since, header_value, service_path, since_text
from tidegate.client.sse import SseMessage, SseParser
from tidegate.client.values import Event, Format, Notice, parse_event, parse_page
from tidegate.errors import ClientError
from tidegate.model import units

if TYPE_CHECKING:
    from tidegate.filters import Filter

ACK_INTERVAL_S = 1.0
"""Time between two automatic acknowledgements while events arrive without a pause."""
_STREAM_ONLY_PARAMS = ("idle", "every", "key", "latest")
"""Parameters that are left out of the request for the position of `now`."""


@dataclass(frozen=True)
class SubscriptionTarget:
    """The service or durable subscription whose events are read, and how."""

    name: str
    """The name of a service, or the id of a durable subscription if `is_durable`."""
    params: Sequence[tuple[str, str]]
    """The query parameters without the start position."""
    since: str
    """The start position; empty to let the gateway choose."""
    cursor: str | None
    format: Format | None
    """None if the format is not known in advance: each event shows it."""
    is_durable: bool = False
    auto_ack: bool = False
    """True if asking for the next event acknowledges the events before it."""

    @property
    def path(self) -> str:
        """The path of the event stream."""
        if self.is_durable:
            return subscription_requests.path(self.name, "events")
        return service_path(self.name, "events")

    @property
    def label(self) -> str:
        """The subscription as error messages name it."""
        return f"the subscription {self.name!r}" if self.is_durable else f"the subscription to {self.name!r}"

    @classmethod
    def of_service(
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
    ) -> SubscriptionTarget:
        """Build the target of an ad-hoc subscription from the arguments of `Client.subscribe`.

        Raises ClientError if the cursor or the start position can't be sent.
        """
        query = event_params(filter_, params, select, format_)
        durations = [(name, f"{value:g}s") for name, value in (("every", every), ("idle", idle)) if value is not None]
        texts = [(name, value) for name, value in (("latest", latest), ("key", key)) if value is not None]
        if cursor is not None:
            header_value("cursor", cursor)
        default = "now" if latest is None else ""  # with `latest` the gateway chooses
        start = default if since is None else since_text(since)
        return cls(service, [*query, *texts, *durations], start, cursor, format_)

    @classmethod
    def of_durable(cls, id_: str, latest: str | None, *, auto_ack: bool) -> SubscriptionTarget:
        """Build the target of a durable subscription; the gateway knows its filter, format and cursor."""
        query = [] if latest is None else [("latest", latest)]
        return cls(id_, query, "", None, None, is_durable=True, auto_ack=auto_ack)


class SubscriptionSession:
    """The position of a subscription, its parsed but undelivered events, and its next request.

    A lost connection neither loses nor repeats events: each event carries its cursor, and the next connection starts
    after the last event that arrived completely. Relative start positions are resolved once: the cursor of `now` is
    requested before the first stream, and a duration such as `10m` grows until there is a cursor.
    """

    def __init__(
        self,
        target: SubscriptionTarget,
        reconnect: Reconnect,
        on_notice: Callable[[Notice], None] | None,
        random: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """`random` returns numbers between 0 and 1, `clock` monotonic seconds."""
        self._target, self._reconnect, self._on_notice = target, reconnect, on_notice
        self._random, self._clock = random, clock
        self._first_request_s: float | None = None
        self.cursor = target.cursor or None
        """The position after the last event that was returned; None if there is none yet."""
        self._read_cursor = target.cursor or ""
        """The position after the last event that was received; the next connection starts here."""
        self._received: deque[Event | Notice | str | ClientError] = deque()
        self._parser = SseParser()
        self._first_backoff_s = reconnect.first_s
        self._failures = 0
        self._was_reached = False
        self._processed_cursor = self._acked_cursor = self.cursor
        self._acked_s = clock()

    # Events ----------------------------------------------------------------------------

    def next_event(self) -> Event | None:
        """Return the next received event, or None if more bytes are needed.

        Calls `on_notice` for the notices before the event. Raises Missed at a gap if there is no `on_notice`, and
        SubscriptionEnded if the gateway has ended the subscription or has sent something that is not an event.
        """
        while self._received:
            item = self._received.popleft()
            match item:
                case ClientError():
                    raise item
                case Event():
                    self.cursor = item.cursor
                    return item
                case Notice():
                    self.cursor = item.cursor or self.cursor
                    self._notify(item)
                case _:
                    self.cursor = item
        return None

    def _notify(self, notice: Notice) -> None:
        if self._on_notice is not None:
            self._on_notice(notice)
        elif notice.kind == "gap":
            error = Missed(f"events of {self._target.name!r} were missed: {_gap_text(notice.said)}")
            error.notice = notice
            raise error

    def feed(self, data: bytes) -> None:
        """Parse bytes of the event stream. Resets the backoff."""
        self._failures = 0
        for message in self._parser.feed(data):
            self._received.append(self._parse_message(message))
        if self._parser.retry_ms is not None:
            self._first_backoff_s = self._parser.retry_ms / 1_000

    def _parse_message(self, message: SseMessage) -> Event | Notice | str | ClientError:
        self._read_cursor = message.id
        if message.data is None:
            return message.id
        try:
            return self._parse_data(message, message.data)
        except (ValueError, KeyError, TypeError, AttributeError):
            return SubscriptionEnded(f"expected an event of {self._target.name!r}, not {message.data!r:.200}")

    def _parse_data(self, message: SseMessage, data: str) -> Event | Notice | str | ClientError:
        match message.name:
            case "message":
                return parse_event(data, message.id, self._target.format)
            case "gap" | "changed" | "idle" | "latest":
                return Notice(message.name, message.id or None, json.loads(data))
            case "error":
                problem = json.loads(data)
                text = f"the gateway has ended {self._target.label}: {problem.get('detail')}"
                return SubscriptionEnded(text, None, problem)
        return message.id  # a kind of message that only newer gateways send: only its position counts

    # Connections -----------------------------------------------------------------------

    def request(self) -> ApiRequest:
        """Return the next request: for the position of `now` if `needs_position`, else for the event stream."""
        if self._first_request_s is None:
            self._first_request_s = self._clock()
        path, params = self._target.path, list(self._target.params)
        if self._read_cursor and self._target.is_durable:
            # Not as Last-Event-ID: the gateway would take that header as an acknowledgement.
            params = [param for param in params if param[0] != "latest"]
            return ApiRequest("GET", path, [*params, ("after", self._read_cursor)], {"accept": SSE})
        if self._read_cursor:
            return ApiRequest("GET", path, params, {"accept": SSE, "last-event-id": self._read_cursor})
        if self.needs_position:
            # If an event arrives at this moment, a page of one event has the cursor of that event.
            params = [param for param in params if param[0] not in _STREAM_ONLY_PARAMS]
            return ApiRequest("GET", path, [*params, ("from", "now"), ("max", "1")])
        since = self._current_since()
        return ApiRequest("GET", path, [*params, ("from", since)] if since else params, {"accept": SSE})

    @property
    def needs_position(self) -> bool:
        """True if `request` returns the request for a page that resolves `now` to a cursor."""
        return not self._read_cursor and self._target.since == "now"

    def _current_since(self) -> str:
        ago_s = units.seconds(self._target.since)
        if ago_s is None or self._first_request_s is None:
            return self._target.since
        return f"{ago_s + self._clock() - self._first_request_s:.3f}s"

    def position_received(self, document: Mapping[str, Any]) -> None:
        """Start after the page that resolves `now`; its event, if it has one, is delivered."""
        self._was_reached = True
        page = parse_page(document, self._target.format)
        if page.cursor is None:  # the service has no output yet, so every event is new
            self._target = replace(self._target, since="beginning")
            return
        self._read_cursor = page.cursor
        self._received.extend(page.events)
        if not page.events:
            self.cursor = page.cursor

    def stream_opened(self) -> None:
        """Prepare for the bytes of a new event stream."""
        self._was_reached = True
        self._parser = SseParser(self._read_cursor)

    def connection_lost(self, error: ClientError) -> float:
        """Return the backoff before the next connection, and send the notice `lost`.

        Raises the error if a retry would not help, or if no connection was ever made.
        """
        is_temporary = not isinstance(error, Unreachable) or self._was_reached
        if error.status is not None:
            is_temporary = isinstance(error, Unavailable)
        if not is_temporary:
            raise error
        backoff_s = self._reconnect.backoff_s(self._first_backoff_s, self._failures, self._random())
        if isinstance(error, Unavailable) and error.retry_after_s is not None:
            backoff_s += error.retry_after_s
        self._failures += 1
        self._notify(Notice("lost", self.cursor, {"reason": str(error), "wait_s": round(backoff_s, 3)}))
        return backoff_s

    # Acknowledgements --------------------------------------------------------------------

    def ack_on_next(self) -> ApiRequest | None:
        """Mark all returned events as processed. Returns the acknowledgement that is due, if any.

        Called before each event. An acknowledgement per event would wait for the registry each time, so one is due
        only if no received event is left, or ACK_INTERVAL_S after the last one.
        """
        self.mark_processed()
        is_late = self._clock() - self._acked_s >= ACK_INTERVAL_S
        return self.pending_ack() if not self._received or is_late else None

    def mark_processed(self) -> None:
        """Mark all returned events as processed."""
        self._processed_cursor = self.cursor

    def pending_ack(self) -> ApiRequest | None:
        """Return the acknowledgement of the processed events, or None if all are acknowledged or `auto_ack` is off."""
        if not self._target.auto_ack or self._processed_cursor is None or self._processed_cursor == self._acked_cursor:
            return None
        return subscription_requests.acknowledge(self._target.name, self._processed_cursor)

    def ack(self, event_or_cursor: Event | str | None) -> ApiRequest:
        """Return the acknowledgement up to an event or cursor, or of all returned events.

        Raises ClientError if the subscription is not durable, or if there is nothing to acknowledge.
        """
        if not self._target.is_durable:
            raise ClientError(
                f"{self._target.label} is not durable and can't be acknowledged: store its cursor yourself"
            )
        cursor = event_or_cursor.cursor if isinstance(event_or_cursor, Event) else event_or_cursor or self.cursor
        if cursor is None:
            raise ClientError("ack: expected an event with a cursor; this subscription has returned none yet")
        self._processed_cursor = cursor
        return subscription_requests.acknowledge(self._target.name, cursor)

    def ack_succeeded(self) -> None:
        """Record that the gateway has stored the acknowledgement."""
        self._acked_cursor, self._acked_s = self._processed_cursor, self._clock()

    def ack_failed(self, error: ClientError) -> None:
        """Leave the events to the next acknowledgement. Raises the error if a retry would not help."""
        self._acked_s = self._clock()
        if error.status is not None and not isinstance(error, Unavailable):
            raise error


def _gap_text(details: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in details.items() if name != "reason"}
    return f"{details.get('reason', 'the gateway gives no reason')}" + (f" ({json.dumps(rest)})" if rest else "")
