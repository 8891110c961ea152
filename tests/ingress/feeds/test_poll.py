"""Events of an HTTP endpoint, against a real server that misbehaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.ingress.kit import events, until
from tidegate.cli.main import app
from tidegate.cli.profile.connections import read_connections
from tidegate.errors import DefinitionError, EnvironmentProblem, SourceError
from tidegate.ingress.connections import FeedResources, HttpConnection
from tidegate.ingress.feeds import poll
from tidegate.ingress.feeds.feed import FeedContext, FeedRequest
from tidegate.ingress.feeds.poll import PollFeed
from tidegate.ingress.feeds.sources import make_feed
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services import from_dict, loads, to_dict
from tidegate.services.definitions import Poll, Stream
from tidegate.services.trust import NamedConnection, Resources, admit

SCHEMA = Schema({"vid": "string", "time": "timestamp?"}, event_time="time")


class Server:
    """Answers each request with what `answer` returns: status, headers and body."""

    def __init__(self) -> None:
        self.answer: Callable[[], tuple[int, dict[str, str], bytes]] = lambda: (200, {}, b"[]")
        self.requests: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append({"path": self.path, **{name.lower(): v for name, v in self.headers.items()}})
                status, headers, body = outer.answer()
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def say(self, value: Any, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answer = lambda: (200, headers, body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    made = SegmentLog(tmp_path / "log")
    yield made
    made.close()


class Running:
    def __init__(self, log: SegmentLog, source: Poll, state: Path | None = None, **more: Any) -> None:
        self.stop = Event()
        feed = PollFeed(source, RawStreamWriter(log, Stream("s", SCHEMA, source=source)), state, **more)
        self.thread = Thread(target=feed.run, args=(self.stop,))

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


def vids(log: SegmentLog) -> list[str]:
    return [event["vid"] for event in events(log, "s")]


def source(server: Server, **more: Any) -> Poll:
    return Poll(f"{server.url}/gps?key=k", every="100ms", **more)


def test_each_event_is_appended_once_also_after_a_restart(server: Server, log: SegmentLog, tmp_path: Path) -> None:
    server.say({"data": {"vehicles": [{"vid": "a", "time": 1}, {"vid": "b", "time": 1}]}})
    polled = source(server, items="data.vehicles", times=(("*", "epoch_s"),))
    for _ in range(2):
        asked = len(server.requests)
        with Running(log, polled, tmp_path / "state"):
            until(lambda asked=asked: len(server.requests) > asked + 3, "some requests", 60)  # type: ignore[misc]
    server.say({"data": {"vehicles": [{"vid": "a", "time": 2}, {"vid": "b", "time": 1}]}})
    with Running(log, polled, tmp_path / "state"):
        until(lambda: len(vids(log)) == 3, "the change", 60)
    assert vids(log) == ["a", "b", "a"]
    assert [event["time"][17:19] for event in events(log, "s")] == ["01", "01", "02"]
    assert all(event["_id"].startswith("poll:") for event in events(log, "s"))


def test_bad_events_go_to_the_quarantine_once(server: Server, log: SegmentLog) -> None:
    server.say(b"vid,time\na,1\nb,soon\n")
    with Running(log, source(server, format="csv", times=(("*", "epoch_s"),))):
        until(lambda: len(server.requests) > 3, "some requests", 60)
    assert vids(log) == ["a"]
    (refused,) = events(log, "s.quarantine")
    assert refused["_reason"] == "time: expected a number of epoch_s, not 'soon'"


def test_unchanged_responses_are_not_sent_again(server: Server, log: SegmentLog) -> None:
    server.say([{"vid": "a"}], etag='"7"')
    with Running(log, source(server)):
        until(lambda: any("if-none-match" in request for request in server.requests), "a condition", 60)
        server.answer = lambda: (304, {}, b"")
        asked = len(server.requests)
        until(lambda: len(server.requests) > asked + 2, "more requests", 60)
    assert server.requests[-1]["if-none-match"] == '"7"'
    assert vids(log) == ["a"]


def test_token_of_the_connection_is_sent_to_its_own_host_only(server: Server, log: SegmentLog) -> None:
    connection = HttpConnection(f"{server.url}/v1/", Token())
    server.say({"vid": "a"})
    with Running(log, Poll("gps?x=1", every="100ms", connection="feed"), connection=connection):
        until(lambda: vids(log) == ["a"], "the event", 60)
    assert (server.requests[0]["path"], server.requests[0]["authorization"]) == ("/v1/gps?x=1", "Bearer hush")


class Token:
    def reveal(self) -> str:
        return "hush"


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (500, {}, b"", "/gps answered 500"),
        (
            302,
            {"location": "http://169.254.169.254/latest"},
            b"",
            "/gps answered 302 to 'http://169.254.169.254/latest'",
        ),
        (200, {}, b"not json", "the response is not JSON"),
        (200, {}, b"[]", "items: the response has no 'data' of 'data'"),
        (200, {"content-encoding": "gzip"}, b"x", "answers with a compressed body"),
        (200, {"content-length": "70000"}, b"[" + b" " * 69_999, "answers with more than 50000 bytes"),
        (200, {}, json.dumps({"data": [1] * 11}).encode(), "the response has more than 10 events"),
        (200, {"content-length": "100"}, b"{}", "/gps ended its response 98 bytes early"),
    ],
)
def test_endpoint_that_misbehaves_is_an_error(
    server: Server,
    log: SegmentLog,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    headers: dict[str, str],
    body: bytes,
    message: str,
) -> None:
    monkeypatch.setattr(poll, "MAX_RESPONSE_BYTES", 50_000)
    monkeypatch.setattr(poll, "MAX_EVENTS", 10)
    monkeypatch.setattr(poll, "TIMEOUT_S", 1.0)
    server.answer = lambda: (status, headers, body)
    feed = PollFeed(source(server, items="data"), RawStreamWriter(log, Stream("s", SCHEMA)))
    with pytest.raises(SourceError) as caught:
        feed.run(Event())
    assert message in str(caught.value)
    assert "key=k" not in str(caught.value)


def test_endpoint_is_tried_by_validate(server: Server, tmp_path: Path) -> None:
    server.say({"vehicles": [{"vid": "a"}, {"vid": 7}, {"vid": "c", "n": 12345678901234567890123}]})
    file = tmp_path / "s.yaml"
    settings = f"{{url: '{server.url}/gps', items: vehicles}}"
    file.write_text(f"streams: {{s: {{schema: {{vid: string}}, source: {{poll: {settings}}}}}}}")
    result = CliRunner().invoke(app, ["validate", "--sources", str(file)], catch_exceptions=False)
    assert result.stdout.splitlines()[-1].startswith("source of s: 3 events read; 1 can't be used, the first: vid:")


def test_server_that_is_away_is_an_error(log: SegmentLog) -> None:
    with pytest.raises(SourceError, match=r"can't read http://127\.0\.0\.1:1/: "):
        PollFeed(Poll("http://127.0.0.1:1/"), RawStreamWriter(log, Stream("s", SCHEMA))).run(Event())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{poll: 'ftp://x'}", "expected a URL such as https://example.com/gps.json"),
        ("{poll: 'http://u:p@x/'}", "expected a URL such as"),
        ("{poll: {url: 'http://x/', connection: feed}}", "expected a path below the URL of the connection"),
        ("{poll: {url: '../x', connection: feed}}", "expected a path below the URL of the connection"),
        ("{poll: {url: '//evil/x', connection: feed}}", "expected a path below the URL of the connection"),
        ("{poll: {url: 'http://x/', every: 1ms}}", "expected a length of time from 100ms to 1d"),
        ("{poll: {url: 'http://x/', format: xml}}", "expected one of json, ndjson, csv"),
    ],
)
def test_settings_are_checked(text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        loads(f"streams: {{s: {{schema: {{vid: string}}, source: {text}}}}}")


def test_definition_is_written_as_it_was_read() -> None:
    for text in (
        "{poll: 'http://x/a?b=1'}",
        "{poll: {url: gps, connection: feed, every: 2s, items: a.b, format: csv}}",
    ):
        definitions = loads(f"streams: {{s: {{schema: {{vid: string}}, source: {text}}}}}")
        assert from_dict(to_dict(definitions)).streams == definitions.streams


def test_definition_from_the_network_names_a_connection(log: SegmentLog) -> None:
    own = loads("streams: {s: {schema: {vid: string}, source: {poll: 'http://169.254.169.254/'}}}")
    named = loads("streams: {s: {schema: {vid: string}, source: {poll: {url: gps, connection: feed}}}}")
    allowed = Resources(connections={"feed": NamedConnection("poll")}).allowed(True, lambda _: True)
    with pytest.raises(DefinitionError, match="connection"):
        admit(own, allowed)
    assert admit(named, allowed).streams == named.streams
    stream = Stream("s", SCHEMA, source=Poll("http://169.254.169.254/"), origin="remote")
    with pytest.raises(SourceError, match="names no host of its own"):
        make_feed(FeedRequest(stream, RawStreamWriter(log, stream), FeedContext(log), print))
    stream = Stream("s", SCHEMA, source=Poll("gps", connection="none"))
    with pytest.raises(SourceError, match="the profile has no poll connection 'none'"):
        make_feed(FeedRequest(stream, RawStreamWriter(log, stream), FeedContext(log, resources=FeedResources()), print))


def test_profile_has_http_servers(tmp_path: Path) -> None:
    path = str(tmp_path / "profile.yaml")
    entry = {"poll": {"url": "https://x/v1", "token": "env:FEED_TOKEN"}}
    assert read_connections({"feed": entry}, path)["feed"].connection.kind == "poll"
    for url in ("ftp://x", "https://u:p@x/", "https://x/?key=1"):
        with pytest.raises(EnvironmentProblem):
            read_connections({"feed": {"poll": {"url": url}}}, path)
