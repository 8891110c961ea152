"""Publishing against a stub server that answers as a gateway does."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tidegate.client import AsyncClient, Client, PublishError, Receipt, Refusal

Answer = tuple[int, dict[str, Any], dict[str, str]]


class Stub(ThreadingHTTPServer):
    """Gives the next of `answers`, or accepts everything if there is none. Records the requests in `seen`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _StubHandler)
        self.answers: list[Answer | None] = []
        self.seen: list[tuple[str, dict[str, str], list[Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _StubHandler(BaseHTTPRequestHandler):
    server: Stub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        events = [json.loads(line) for line in body.splitlines()]
        self.server.seen.append((self.path, dict(self.headers.items()), events))
        answer = self.server.answers.pop(0) if self.server.answers else taken(len(events))
        if answer is None:  # close the connection without a response
            self.close_connection = True
            return
        status, document, headers = answer
        data = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


def taken(count: int, **more: Any) -> Answer:
    return 200, {"accepted": count, "duplicates": 0, "refused": 0, "cursor": f"c{count}", **more}, {}


def problem(status: int, kind: str, detail: str, **more: Any) -> Answer:
    return status, {"type": f"urn:tidegate:problem:{kind}", "detail": detail, **more}, {"retry-after": "0"}


BUSY = problem(429, "overloaded", "too much at once")
UNSURE = problem(503, "not-acknowledged", "not acknowledged")


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(stub: Stub) -> Iterator[Client]:
    with Client(stub.url, key="secret") as connected:
        yield connected


def numbers(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, **more} for n in range(count)]


def with_ids(count: int) -> list[dict[str, Any]]:
    return [{"_id": f"e{n}", "n": n} for n in range(count)]


def test_events_are_sent_in_batches(stub: Stub, client: Client) -> None:
    assert client.publish("gps raw", iter(numbers(1_001))) == Receipt(1_001, 0, 0, (), "c1")
    assert [len(events) for _, _, events in stub.seen] == [500, 500, 1]
    path, headers, _ = stub.seen[0]
    assert path == "/v1/streams/gps%20raw/events?mode=all"
    assert headers["content-type"] == "application/x-ndjson"
    assert headers["authorization"] == "Bearer secret"
    assert [event["n"] for _, _, events in stub.seen for event in events] == list(range(1_001))


def test_publishing_no_events_sends_no_request(stub: Stub, client: Client) -> None:
    assert client.publish("gps", []) == Receipt()
    assert stub.seen == []


def test_batches_are_limited_by_size(stub: Stub, client: Client) -> None:
    client.publish("gps", numbers(5, text="x" * 1_500_000))
    assert [len(events) for _, _, events in stub.seen] == [2, 2, 1]


def test_async_client_publishes_and_retries(stub: Stub) -> None:
    async def run() -> Receipt:
        async with AsyncClient(stub.url) as client:
            return await client.publish("gps", numbers(3), batch=2)

    stub.answers = [BUSY]
    assert asyncio.run(run()) == Receipt(3, 0, 0, (), "c1")


def test_partial_mode_reports_the_index_of_a_refused_event_among_all(stub: Stub, client: Client) -> None:
    errors = [{"index": 1, "pointer": "speed", "detail": "'x' is no number", "line": 2}]
    stub.answers = [taken(2), taken(1, refused=1, errors=errors, error_count=1)]
    receipt = client.publish("gps", numbers(4), mode="partial", batch=2)
    assert receipt == Receipt(3, 0, 1, (Refusal(3, "speed", "'x' is no number"),), "c1")
    assert str(receipt.errors[0]) == "event 3: speed: 'x' is no number"
    assert stub.seen[0][0].endswith("?mode=partial")


def test_refused_batch_reports_the_batches_before_it(stub: Stub, client: Client) -> None:
    errors = [{"index": 0, "pointer": "speed", "detail": "'x' is no number"}]
    refused = problem(422, "bad-event", "nothing was accepted", accepted=0, duplicates=0, refused=1, errors=errors)
    stub.answers = [taken(2), refused]
    with pytest.raises(PublishError, match="2 events are in gps; then: nothing was accepted") as caught:
        client.publish("gps", numbers(6), batch=2)
    assert caught.value.receipt == Receipt(2, 0, 1, (Refusal(2, "speed", "'x' is no number"),), "c2")
    assert caught.value.status == 422
    assert len(stub.seen) == 2


def test_batch_that_was_not_accepted_is_sent_again(stub: Stub, client: Client) -> None:
    stub.answers = [BUSY, BUSY]
    assert client.publish("gps", numbers(3)).accepted == 3
    assert len(stub.seen) == 3


@pytest.mark.parametrize("answer", [UNSURE, None])
def test_batch_that_may_have_been_accepted_is_sent_again_only_with_ids(
    stub: Stub, client: Client, answer: Answer | None
) -> None:
    stub.answers = [answer]
    assert client.publish("gps", with_ids(3)).accepted == 3
    assert len(stub.seen) == 2
    stub.answers = [answer]
    with pytest.raises(PublishError, match="not retried, because events without an _id could be appended twice"):
        client.publish("gps", [*with_ids(2), {"n": 3}])
    assert len(stub.seen) == 3


def test_retries_end_after_the_timeout(stub: Stub, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.client.publish_session.RETRY_TIMEOUT_S", 0.2)
    stub.answers = [BUSY] * 100
    with pytest.raises(PublishError, match="too much at once"):
        client.publish("gps", numbers(3))
    assert len(stub.seen) == 5


def test_datetimes_are_encoded_and_other_values_without_a_json_form_are_refused(stub: Stub, client: Client) -> None:
    client.publish("gps", [{"time": datetime(2026, 1, 1, tzinfo=UTC)}])
    assert stub.seen[0][2] == [{"time": "2026-01-01T00:00:00+00:00"}]
    for value in (float("nan"), object(), datetime(2026, 1, 1)):  # noqa: DTZ001 - the missing time zone is the error
        with pytest.raises(PublishError, match="event 1 can't be written as JSON: "):
            client.publish("gps", [{}, {"x": value}])


@pytest.mark.parametrize("event", [{"n": 7}, b'{"n": 7}', '{"n": 7}'])
def test_single_event_needs_no_list(stub: Stub, client: Client, event: Any) -> None:
    client.publish("gps", event)
    client.publish("gps", [event])
    assert [events for _, _, events in stub.seen] == [[{"n": 7}]] * 2


def test_value_that_is_not_an_event_is_refused(client: Client) -> None:
    with pytest.raises(PublishError, match=r"event 1: expected a dict or a JSON object as text, not \[3\]"):
        client.publish("gps", [{}, [3]])  # type: ignore[list-item]


def test_batch_size_must_be_positive(client: Client) -> None:
    with pytest.raises(PublishError, match="batch: expected at least 1 event, not 0"):
        client.publish("gps", [], batch=0)


def test_answer_of_another_server_is_an_error(stub: Stub, client: Client) -> None:
    stub.answers = [(200, {}, {})]
    with pytest.raises(PublishError, match=r"expected the counts of accepted events, not \{\}: is it a gateway"):
        client.publish("gps", numbers(1))
    stub.answers = [(404, {"x": 1}, {})]
    with pytest.raises(PublishError, match=r"/v1/streams/gps/events\?mode=all answered 404 Not Found"):
        client.publish("gps", numbers(1))
