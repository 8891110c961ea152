"""Requests, events and errors of a subscription session, without a connection."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.client import Missed, Notice, Reconnect, Refused, SubscriptionEnded, Unavailable, Unreachable
from tidegate.client.errors import ConnectionLost
from tidegate.client.subscription_session import ACK_INTERVAL_S, SubscriptionSession, SubscriptionTarget
from tidegate.errors import ClientError

LOST = ConnectionLost("lost")


class ManualClock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def new_session(
    since: str = "beginning",
    cursor: str | None = None,
    on_notice: Callable[[Notice], None] | None = None,
    random: float = 1.0,
    clock: Callable[[], float] = ManualClock(),  # noqa: B008 - nobody advances it
) -> SubscriptionSession:
    target = SubscriptionTarget("gps", [("filter", "speed > 3"), ("idle", "5s")], since, cursor, "plain")
    return SubscriptionSession(target, Reconnect(), on_notice, lambda: random, clock)


def event_bytes(n: int) -> bytes:
    return b'id: c%d\ndata: {"_id":"e%d","_time":null}\n\n' % (n, n)


def cursor_of(session: SubscriptionSession) -> str | None:
    return session.cursor


def drain(session: SubscriptionSession) -> list[str]:
    ids = []
    while (event := session.next_event()) is not None:
        ids.append(event.id)
    return ids


def test_backoff_doubles_up_to_the_maximum_and_is_reset_by_the_first_byte() -> None:
    session = new_session()
    session.stream_opened()
    assert [session.connection_lost(LOST) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    session.stream_opened()
    session.feed(b":\n")
    assert session.connection_lost(LOST) == 1


@pytest.mark.parametrize(("random", "backoff_s"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_half_of_the_backoff_is_random(random: float, backoff_s: float) -> None:
    assert new_session(random=random).connection_lost(LOST) == backoff_s


def test_server_sets_the_first_backoff_and_retry_after_is_added() -> None:
    session = new_session()
    session.stream_opened()
    session.feed(b"retry: 200\n\n")
    assert session.connection_lost(LOST) == 0.2
    assert session.connection_lost(Unavailable("later", 503, {}, retry_after_s=7.0)) == 7.4


def test_reconnect_continues_after_the_last_complete_event() -> None:
    session = new_session()
    request = session.request()
    assert ("from", "beginning") in request.params
    session.stream_opened()
    session.feed(event_bytes(1) + event_bytes(2) + event_bytes(3)[:-1])
    assert cursor_of(session) is None  # no event was returned
    assert drain(session) == ["e1", "e2"]
    assert cursor_of(session) == "c2"
    session.connection_lost(LOST)
    request = session.request()
    assert request.headers["last-event-id"] == "c2"
    assert not {"from", "cursor"} & {name for name, _ in request.params}
    session.stream_opened()
    session.feed(event_bytes(3))
    assert drain(session) == ["e3"]


def test_heartbeat_moves_the_cursor_after_the_events_before_it() -> None:
    session = new_session()
    session.stream_opened()
    session.feed(event_bytes(1) + b":\n\nid: c9\n\n")
    first = session.next_event()
    assert first is not None
    assert (first.cursor, cursor_of(session)) == ("c1", "c1")
    assert session.next_event() is None
    assert cursor_of(session) == "c9"
    assert session.request().headers["last-event-id"] == "c9"


def test_now_is_resolved_to_a_cursor_before_the_stream_is_requested() -> None:
    session = new_session("now")
    request = session.request()
    assert session.needs_position
    assert "accept" not in request.headers
    assert request.params == [("filter", "speed > 3"), ("from", "now"), ("max", "1")]
    session.position_received({"cursor": "c0", "events": []})
    assert "accept" in session.request().headers
    assert session.cursor == "c0"
    assert session.request().headers["last-event-id"] == "c0"


def test_event_that_arrives_while_now_is_resolved_is_returned() -> None:
    session = new_session("now")
    session.position_received({"cursor": "c1", "events": [{"_id": "e1", "_time": None}]})
    assert drain(session) == ["e1"]
    assert session.cursor == "c1"


def test_now_of_a_service_without_output_is_its_beginning() -> None:
    session = new_session("now")
    session.position_received({"cursor": "", "events": []})
    assert ("from", "beginning") in session.request().params


def test_relative_start_stays_the_same_point_in_time() -> None:
    clock = ManualClock()
    session = new_session("10m", clock=clock)
    assert ("from", "600.000s") in session.request().params
    clock.now_s += 2.5
    assert ("from", "602.500s") in session.request().params


def test_gap_is_raised_without_on_notice() -> None:
    session = new_session()
    session.stream_opened()
    session.feed(event_bytes(1) + b'id: c5\nevent: gap\ndata: {"reason":"too old","missed":[]}\n\n' + event_bytes(6))
    assert session.next_event() is not None
    with pytest.raises(Missed, match=r"events of 'gps' were missed: too old \(\{\"missed\": \[\]\}\)") as caught:
        session.next_event()
    assert caught.value.notice == Notice("gap", "c5", {"reason": "too old", "missed": []})
    assert session.cursor == "c5"
    assert drain(session) == ["e6"]


def test_notices_are_sent_in_order_with_the_events() -> None:
    order: list[Any] = []
    session = new_session(on_notice=lambda notice: order.append(notice.kind))
    session.stream_opened()
    for kind in ("gap", "changed", "idle", "news"):
        session.feed(b"event: %s\ndata: {}\n\n" % kind.encode() + event_bytes(1))
    while (event := session.next_event()) is not None:
        order.append(event.id)
    session.connection_lost(LOST)
    assert order == ["gap", "e1", "changed", "e1", "idle", "e1", "e1", "lost"]


def test_error_message_of_the_gateway_ends_the_subscription() -> None:
    session = new_session()
    session.stream_opened()
    session.feed(event_bytes(1) + b'event: error\ndata: {"detail":"no service \'gps\'"}\n\n')
    assert session.next_event() is not None
    with pytest.raises(SubscriptionEnded, match="the gateway has ended the subscription to 'gps': no service 'gps'"):
        session.next_event()


@pytest.mark.parametrize("data", ["{", "[]", "{}", "3"])
def test_message_that_is_not_an_event_is_raised(data: str) -> None:
    session = new_session()
    session.stream_opened()
    session.feed(f"data: {data}\n\n".encode())
    with pytest.raises(ClientError, match="expected an event of 'gps', not "):
        session.next_event()


def test_permanent_errors_are_raised_and_temporary_ones_retried() -> None:
    session = new_session()
    for error in (Refused("no", 404), Unreachable("nobody")):
        with pytest.raises(type(error)):
            session.connection_lost(error)
    session.connection_lost(Unavailable("not yet", 503))
    session.stream_opened()
    session.connection_lost(Unreachable("nobody"))  # the gateway was reached before
    with pytest.raises(Refused):
        session.connection_lost(Refused("no", 404))


def durable_session(clock: Callable[[], float]) -> SubscriptionSession:
    target = SubscriptionTarget.of_durable("s", None, auto_ack=True)
    return SubscriptionSession(target, Reconnect(), None, lambda: 1.0, clock)


def test_error_message_names_the_id_of_a_durable_subscription() -> None:
    session = durable_session(ManualClock())
    session.stream_opened()
    session.feed(b'event: error\ndata: {"detail":"it was deleted"}\n\n')
    with pytest.raises(SubscriptionEnded, match="the gateway has ended the subscription 's': it was deleted"):
        session.next_event()


def test_continuous_events_are_acknowledged_once_per_interval() -> None:
    clock = ManualClock()
    session = durable_session(clock)
    session.stream_opened()
    session.feed(b"".join(event_bytes(n) for n in range(9)))
    assert session.ack_on_next() is None
    session.next_event()
    assert session.ack_on_next() is None
    clock.now_s += ACK_INTERVAL_S
    due = session.ack_on_next()
    assert due is not None
    assert due.body == b'{"cursor": "c0"}'
    session.ack_failed(ClientError("lost"))
    session.next_event()
    assert session.ack_on_next() is None
    clock.now_s += ACK_INTERVAL_S
    due = session.ack_on_next()
    assert due is not None
    assert due.body == b'{"cursor": "c1"}'
    session.ack_succeeded()
    assert session.pending_ack() is None
    with pytest.raises(Refused):
        session.ack_failed(Refused("gone", 404))


def test_errors_can_be_pickled() -> None:
    error = Unavailable("later", 503, {"detail": "later"}, retry_after_s=2.0)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.status, again.document, again.retry_after_s) == ("later", 503, {"detail": "later"}, 2.0)
    assert json.dumps(again.document)
