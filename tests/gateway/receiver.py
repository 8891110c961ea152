"""A real receiver of webhooks: an HTTP server in a thread that records requests and returns chosen answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Got:
    """A request as it came."""

    method: str
    headers: dict[str, str]
    body: bytes

    @property
    def numbers(self) -> list[int]:
        """Which events of the test's stream it has."""
        said = json.loads(self.body)
        ids = [each.get("id") or each["_id"] for each in (said if isinstance(said, list) else [said])]
        return [int(each.rpartition(":")[2]) for each in ids]


class Receiver:
    """Answers with `status` and `answer_headers`; waits while `held` is not set."""

    def __init__(self) -> None:
        self.status = 204
        self.statuses: list[int] = []
        """Answers of the next requests, before `status`."""
        self.refuses: set[int] = set()
        """Events that are answered with 422."""
        self.answer_headers: dict[str, str] = {}
        self.allowed: str | None = "*"
        """What a handshake is answered with; None: no header."""
        self.handshake_status = 200
        self.free = threading.Event()
        self.free.set()
        self.begun = 0
        """Messages that have come, answered or not."""
        self.got: list[Got] = []
        self.handshakes: list[Got] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    @property
    def numbers(self) -> list[int]:
        """The events of all messages."""
        return [n for each in self.got for n in each.numbers]

    @property
    def taken(self) -> list[int]:
        return [n for each, status in zip(self.got, self.said, strict=False) if status < 300 for n in each.numbers]

    @contextmanager
    def running(self) -> Iterator[Receiver]:
        self.said: list[int] = []
        server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        server.daemon_threads = True
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.free.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_OPTIONS(self) -> None:
                receiver.handshakes.append(self._read())
                headers = {} if receiver.allowed is None else {"WebHook-Allowed-Origin": receiver.allowed}
                self._answer(receiver.handshake_status, headers)

            def do_POST(self) -> None:
                got = self._read()
                receiver.begun += 1
                receiver.free.wait()
                status = receiver.statuses.pop(0) if receiver.statuses else receiver.status
                if receiver.refuses and receiver.refuses & set(got.numbers):
                    status = 422
                receiver.said.append(status)
                receiver.got.append(got)
                self._answer(status, receiver.answer_headers)

            def _read(self) -> Got:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                return Got(self.command, {name.lower(): value for name, value in self.headers.items()}, body)

            def _answer(self, status: int, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                body = b"" if status == 204 else b"thanks"
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                pass

        return Handler


def is_signed(got: Got, secret: str) -> bool:
    """Return True if a message is signed with a secret as in Standard Webhooks."""
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    key = base64.b64decode(secret.split("_", 1)[1])
    expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return expected in got.headers["webhook-signature"].split(" ")
