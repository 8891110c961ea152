"""What a subscription does next, without any connection."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.client import Missed, Notice, Refused, SubscriptionEnded, Unavailable, Unreachable
from tidegate.client.course import Course, Reconnect, Wanted
from tidegate.client.errors import ConnectionLost
from tidegate.errors import ClientError

LOST = ConnectionLost("lost")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def course(
    since: str = "beginning",
    cursor: str | None = None,
    tell: Callable[[Notice], None] | None = None,
    random: float = 1.0,
    clock: Callable[[], float] = Clock(),  # noqa: B008 - it stands still
) -> Course:
    wanted = Wanted("gps", [("filter", "speed > 3"), ("idle", "5s")], since, cursor, "plain")
    return Course(wanted, Reconnect(), tell, lambda: random, clock)


def event(n: int) -> bytes:
    return b'id: c%d\ndata: {"_id":"e%d","_time":null}\n\n' % (n, n)


def place(found: Course) -> str | None:
    return found.cursor


def drained(found: Course) -> list[str]:
    ids = []
    while (each := found.next()) is not None:
        ids.append(each.id)
    return ids


def test_waits_double_up_to_the_most_and_begin_again_with_the_first_byte() -> None:
    found = course()
    found.opened()
    assert [found.lost(LOST) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    found.opened()
    found.feed(b":\n")
    assert found.lost(LOST) == 1


@pytest.mark.parametrize(("random", "wait_s"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_half_of_a_wait_is_random(random: float, wait_s: float) -> None:
    assert course(random=random).lost(LOST) == wait_s


def test_the_server_says_how_long() -> None:
    found = course()
    found.opened()
    found.feed(b"retry: 200\n\n")
    assert found.lost(LOST) == 0.2
    assert found.lost(Unavailable("later", 503, {}, retry_after_s=7.0)) == 7.4


def test_goes_on_behind_the_last_whole_event() -> None:
    found = course()
    asked = found.request()
    assert ("from", "beginning") in asked.params
    found.opened()
    found.feed(event(1) + event(2) + event(3)[:-1])
    assert place(found) is None  # nothing was handed out
    assert drained(found) == ["e1", "e2"]
    assert place(found) == "c2"
    found.lost(LOST)
    asked = found.request()
    assert asked.headers["last-event-id"] == "c2"
    assert not {"from", "cursor"} & {name for name, _ in asked.params}
    found.opened()
    found.feed(event(3))
    assert drained(found) == ["e3"]


def test_a_heartbeat_moves_the_place_after_what_came_before() -> None:
    found = course()
    found.opened()
    found.feed(event(1) + b":\n\nid: c9\n\n")
    first = found.next()
    assert first is not None
    assert (first.cursor, place(found)) == ("c1", "c1")
    assert found.next() is None
    assert place(found) == "c9"
    assert found.request().headers["last-event-id"] == "c9"


def test_now_is_a_place_that_is_asked_for_first() -> None:
    found = course("now")
    asked = found.request()
    assert found.wants_place
    assert "accept" not in asked.headers
    assert asked.params == [("filter", "speed > 3"), ("from", "now"), ("max", "1")]
    found.placed({"cursor": "c0", "events": []})
    assert "accept" in found.request().headers
    assert found.cursor == "c0"
    assert found.request().headers["last-event-id"] == "c0"


def test_what_comes_while_the_place_is_asked_for_is_given() -> None:
    found = course("now")
    found.placed({"cursor": "c1", "events": [{"_id": "e1", "_time": None}]})
    assert drained(found) == ["e1"]
    assert found.cursor == "c1"


def test_a_service_without_an_output_is_read_from_its_beginning() -> None:
    found = course("now")
    found.placed({"cursor": "", "events": []})
    assert ("from", "beginning") in found.request().params


def test_ten_minutes_ago_stays_the_same_moment() -> None:
    clock = Clock()
    found = course("10m", clock=clock)
    assert ("from", "600.000s") in found.request().params
    clock.now_s += 2.5
    assert ("from", "602.500s") in found.request().params


def test_a_gap_is_raised_where_nobody_is_told() -> None:
    found = course()
    found.opened()
    found.feed(event(1) + b'id: c5\nevent: gap\ndata: {"reason":"too old","missed":[]}\n\n' + event(6))
    assert found.next() is not None
    with pytest.raises(Missed, match=r"events of 'gps' were missed: too old \(\{\"missed\": \[\]\}\)") as caught:
        found.next()
    assert caught.value.notice == Notice("gap", "c5", {"reason": "too old", "missed": []})
    assert found.cursor == "c5"
    assert drained(found) == ["e6"]


def test_notices_are_told_in_their_place() -> None:
    order: list[Any] = []
    found = course(tell=lambda notice: order.append(notice.kind))
    found.opened()
    for kind in ("gap", "changed", "idle", "news"):
        found.feed(b"event: %s\ndata: {}\n\n" % kind.encode() + event(1))
    while (each := found.next()) is not None:
        order.append(each.id)
    found.lost(LOST)
    assert order == ["gap", "e1", "changed", "e1", "idle", "e1", "e1", "lost"]


def test_an_end_that_the_gateway_tells() -> None:
    found = course()
    found.opened()
    found.feed(event(1) + b'event: error\ndata: {"detail":"no service \'gps\'"}\n\n')
    assert found.next() is not None
    with pytest.raises(SubscriptionEnded, match="'gps' can't go on: no service 'gps'"):
        found.next()


@pytest.mark.parametrize("data", ["{", "[]", "{}", "3"])
def test_what_is_no_event(data: str) -> None:
    found = course()
    found.opened()
    found.feed(f"data: {data}\n\n".encode())
    with pytest.raises(ClientError, match="expected an event of 'gps', not "):
        found.next()


def test_what_is_raised_and_what_is_waited_for() -> None:
    found = course()
    for error in (Refused("no", 404), Unreachable("nobody")):
        with pytest.raises(type(error)):
            found.lost(error)
    found.lost(Unavailable("not yet", 503))
    found.opened()
    found.lost(Unreachable("nobody"))  # it was there before
    with pytest.raises(Refused):
        found.lost(Refused("no", 404))


def test_errors_cross_processes() -> None:
    error = Unavailable("later", 503, {"detail": "later"}, retry_after_s=2.0)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.status, again.document, again.retry_after_s) == ("later", 503, {"detail": "later"}, 2.0)
    assert json.dumps(again.document)
