"""Results, errors and backoff of a watched discovery request, without a connection."""

from __future__ import annotations

import pytest

from tidegate.client import Reconnect, Refused, Unavailable, Unreachable
from tidegate.client.discovery_watch import DiscoveryWatch

ANSWER = b'event: answer\ndata: {"results": []}\n\n'


def new_watch() -> DiscoveryWatch:
    return DiscoveryWatch(Reconnect(), lambda: 1.0)


def test_answers_and_changes_have_their_kind() -> None:
    watch = new_watch()
    chunks = (b":\n\n" + ANSWER[:20], ANSWER[20:], b'id: 7\n\nevent: changes\ndata: {"left": ["gps"]}\n\n')
    assert [answer for chunk in chunks for answer in watch.feed(chunk)] == [
        {"kind": "answer", "results": []},
        {"kind": "changes", "left": ["gps"]},
    ]


def test_error_message_of_the_gateway_is_raised() -> None:
    with pytest.raises(Refused, match="the key has expired") as caught:
        list(new_watch().feed(b'event: error\ndata: {"detail": "the key has expired"}\n\n'))
    assert caught.value.status == 401


def test_no_failure_is_retried_before_the_first_answer() -> None:
    for error in (Unreachable("nobody"), Unavailable("later", 503), Refused("no", 404)):
        with pytest.raises(type(error)):
            new_watch().connection_failed(error)


def test_only_temporary_failures_are_retried_after_an_answer() -> None:
    watch = new_watch()
    list(watch.feed(ANSWER))
    watch.connection_failed(Unreachable("nobody"))
    watch.connection_failed(Unavailable("later", 503))
    with pytest.raises(Refused):
        watch.connection_failed(Refused("no", 404))


def test_backoff_doubles_with_each_failure_and_is_reset_by_an_answer() -> None:
    watch = new_watch()
    list(watch.feed(ANSWER))
    backoffs_s = [watch.next_backoff_s()]
    for _ in range(6):
        watch.connection_failed(Unreachable("nobody"))
        backoffs_s.append(watch.next_backoff_s())
    assert backoffs_s == [1, 2, 4, 8, 16, 30, 30]
    list(watch.feed(ANSWER))
    assert watch.next_backoff_s() == 1


def test_incomplete_message_is_dropped_with_its_connection() -> None:
    watch = new_watch()
    assert list(watch.feed(ANSWER[:-1])) == []
    watch.next_backoff_s()
    assert list(watch.feed(ANSWER)) == [{"kind": "answer", "results": []}]
