"""A neighbour broker that knows the secret of its link and says whatever it likes.

`Hostile` speaks the protocol of `docs/spec/federation.md` by itself: no code of the links is used.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
from typer.testing import CliRunner
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.gateway.routes.test_links import Broker
from tests.pipelines.running import until
from tidegate.cli.main import app
from tidegate.errors import LogError, TidegateError
from tidegate.federation.link.keys import OriginKey, key_set
from tidegate.logs.gap_records import with_gaps

PROTOCOL = "tidegate.link.v1"
SECRET = "a secret that both ends of a link know"
FRAME_BYTES = 400 * 1024
NONCE = "n" * 32


def offer(name: str, **more: Any) -> dict[str, Any]:
    """Describe a service as brokers do."""
    return {
        "name": name,
        "definition": {},
        "schema": {"n": "int64"},
        "constraints": {},
        "terms": {},
        "event_time": None,
        "public": False,
        "onward": True,
        **more,
    }


def record(service: str, n: int, generation: str = "g1", value: int | None = None) -> bytes:
    """Write an event as a mirror holds it."""
    return b'{"_id":"%d","_src":"%s/%s/0:%d","n":%d}' % (
        n,
        service.encode(),
        generation.encode(),
        n,
        n if value is None else value,
    )


def cursor(*said: Any) -> str:
    """Write a cursor."""
    return urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()


def proof(secret: str, end: str, dials: str, answers: str, nonce: str, other: str) -> str:
    """Prove the knowledge of a secret, as either end of a link does."""
    said = "\n".join((PROTOCOL, end, dials, answers, nonce, other))
    return hmac.new(secret.encode(), said.encode(), hashlib.sha256).hexdigest()


class Hostile:
    """A neighbour that has dialled a gateway; it answers questions for history with empty pages, or by `answer`."""

    def __init__(self, url: str, name: str, to: str = "here", secret: str = SECRET) -> None:
        self.name = name
        self.heard: list[dict[str, Any]] = []
        self.closed: str | None = None
        """Why the gateway has closed the connection; None: it has not."""
        self.answer: Callable[[dict[str, Any]], tuple[dict[str, Any], Iterable[bytes]]] = lambda _: ({}, ())
        address = f"{url.replace('http', 'ws', 1)}/v1/link"
        self._open = ExitStack()
        self._socket = self._open.enter_context(
            connect(address, subprotocols=[Subprotocol(PROTOCOL)], max_size=None, compression=None)
        )
        self.say({"type": "open", "broker": name, "to": to, "nonce": NONCE})
        other = self._next()["nonce"]
        self.say({"type": "proof", "proof": proof(secret, "dials", name, to, NONCE, other)})
        self.welcome = self._next()
        self._reader = threading.Thread(target=self._read, daemon=True)
        if self.welcome["type"] == "welcome":
            self._reader.start()

    def __enter__(self) -> Hostile:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def greet(self, *services: dict[str, Any]) -> Hostile:
        """Offer services, and say what a broker says when a link comes up."""
        self.say({"type": "offers", "services": list(services)})
        self.say({"type": "hello", "tables": {}, "paths": [[self.name]]})
        return self

    def say(self, message: dict[str, Any]) -> None:
        """Send a control message."""
        self.send(b"c", json.dumps(message).encode())

    def give(self, service: str, records: Sequence[bytes], **more: Any) -> None:
        """Send events."""
        head = {"service": service, "cursor": '["g1",{"0":1}]', **more}
        self.send(b"e", b"\n".join([json.dumps(head).encode(), *records]))

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a message in frames; nothing once the gateway has closed the connection."""
        parts = [body[at : at + FRAME_BYTES] for at in range(0, len(body), FRAME_BYTES)] or [b""]
        try:
            for part in parts[:-1]:
                self._socket.send(b"+" + part)
            self._socket.send(kind + parts[-1])
        except ConnectionClosed:
            pass

    def messages(self, kind: str) -> list[dict[str, Any]]:
        """Return what the gateway has said of one type."""
        return [each for each in list(self.heard) if each.get("type") == kind]

    def is_taken(self, events: int) -> bool:
        """Return True if the gateway has processed this number of events."""
        return sum(int(each["events"]) for each in self.messages("taken")) >= events

    def need_closed(self, reason: str) -> None:
        """Wait until the gateway has closed the connection for a reason."""
        until(lambda: self.closed is not None, "the connection to be closed")
        assert reason in str(self.closed)

    def _next(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._socket.recv(30, decode=False)[1:])
        return found

    def _read(self) -> None:
        body = b""
        try:
            while True:
                frame = self._socket.recv(decode=False)
                body += frame[1:]
                if frame[:1] == b"+":
                    continue
                if frame[:1] == b"c":
                    self._hear(json.loads(body))
                body = b""
        except ConnectionClosed as exc:
            self.closed = exc.rcvd.reason if exc.rcvd is not None else "cut"

    def _hear(self, said: dict[str, Any]) -> None:
        self.heard.append(said)
        if said["type"] == "history":
            head, records = self.answer(said)
            page = {"start": said["place"], "cursor": said["place"], "until": None, "last": True}
            self.give(said["service"], list(records), history=said["id"], **{**page, **head})


class Victim(Broker):
    """The broker `here`, with one admin's key; guests come without."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, "here", **settings)
        self.needs_keys = True
        _, self.key = self.registry.create_key("boss", "admin")

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, headers={"authorization": f"Bearer {self.key}"})

    def add(self, name: str, **more: Any) -> None:
        """Link a broker that dials."""
        self.call("POST", "/v1/links", json={"name": name, "secret": SECRET, **more})

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/v1/links/{name}")
        return found

    def refusals(self, name: str) -> dict[str, int]:
        return {kind: count for kind, count in self.status(name)["refusals"].items() if count}

    def want(self, service: str) -> None:
        """Subscribe, so that events of a service are asked for."""
        until(lambda: self.knows(service), f"{service} to be known")
        self.subscribe(service)

    def mirrored(self, service: str) -> list[int]:
        """The values of `n` that the mirror of a service holds."""
        try:
            read = self.log.read(service, self.log.begin(service), 100_000)
        except LogError:
            return []
        return [orjson.loads(each)["n"] for each in with_gaps(read).records]

    def pin(self, origin: str, *keys: OriginKey) -> None:
        self.call("PUT", f"/v1/links/{origin}/keys", content=key_set(keys))

    def metric(self, name: str) -> float:
        with self.client() as http:
            lines = http.get("/metrics").text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(name))


@contextmanager
def linked(here: Victim, name: str, *services: dict[str, Any], **more: Any) -> Iterator[Hostile]:
    """Link a hostile neighbour that offers services; the link is removed behind it."""
    here.add(name, **more)
    try:
        with Hostile(here.url, name) as hostile:
            yield hostile.greet(*services)
    finally:
        here.call("DELETE", f"/v1/links/{name}")


def run_tidegate(*args: object, stdin: str | None = None, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Run one `tidegate` command in this process; return its output and its error."""
    done = CliRunner().invoke(app, [str(each) for each in args], input=stdin, env=env)
    assert done.exception is None or isinstance(done.exception, TidegateError), done.output
    return done.stdout, "" if done.exception is None else str(done.exception)
