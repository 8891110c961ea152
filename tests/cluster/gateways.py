"""Several gateways as processes, over one Kafka and one PostgreSQL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.polling import until
from tests.ports import free_port
from tidegate.logs import KafkaLog
from tidegate.registry import PostgresRegistry
from tidegate.services import loads

CITY = """
streams:
  trips_raw: {schema: {n: int64}, source: {http: {}}}
services:
  trips: {from: trips_raw}
"""


MAX_SUBSCRIPTIONS = 20
"""Connected subscribers that a caller may have in all."""


class GatewayProcess:
    """One `tidegate gateway`, which tests stop, continue and kill."""

    def __init__(self, folder: Path, profile: Path, options: Sequence[str] = ()) -> None:
        folder.mkdir()
        self.output, port = folder / "gateway.txt", free_port()
        command = [sys.executable, "-m", "tidegate", "gateway", "--data", str(folder / "data"), "--port", str(port)]
        with self.output.open("wb") as written:
            self._process = subprocess.Popen(
                [*command, "--profile", str(profile), *options], stdout=written, stderr=written
            )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def wait(self) -> GatewayProcess:
        """Wait until it listens."""
        until(lambda: "listening: " in self.output.read_text() or self._process.poll() is not None, "it to listen", 90)
        assert self._process.poll() is None, self.output.read_text()
        return self

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.http.close()
        self._process.kill()
        self._process.wait()


class Cluster:
    """A broker and a database, with the city applied, and the gateways that tests start over them."""

    def __init__(self, folder: Path, kafka: str, postgres: str) -> None:
        self.folder, self.registry, self.log = folder, PostgresRegistry(postgres), KafkaLog(kafka)
        self.registry.apply(loads(CITY))
        self.log.create("trips", ["0", "1"])
        self.profile = folder / "profile.yaml"
        self.write_profile(kafka, postgres)
        self.gateways: list[GatewayProcess] = []
        self.sent = 0

    def write_profile(self, kafka: str, postgres: str, more: str = "") -> None:
        text = f"log: {{kafka: '{kafka}'}}\nregistry: '{postgres}'\nwebhooks: {{allow_private: true}}\n"
        text += f"access: {{quotas: {{subscriptions: {MAX_SUBSCRIPTIONS}}}}}\n"
        self.profile.write_text(text + more)

    def start(self, count: int = 1, options: Sequence[str] = ()) -> list[GatewayProcess]:
        """Start some gateways at once, and return them when they listen."""
        started = []
        for _ in range(count):
            started.append(GatewayProcess(self.folder / f"g{len(self.gateways)}", self.profile, options))
            self.gateways.append(started[-1])
        return [each.wait() for each in started]

    def append(self, count: int) -> None:
        """Append numbered results of `trips`, alternately to its two partitions."""
        numbers = range(self.sent, self.sent + count)
        for partition in (0, 1):
            records = [_result(n) for n in numbers if n % 2 == partition]
            self.log.append("trips", str(partition), records)
        self.sent += count

    def holders(self) -> list[str]:
        """The gateways that deliver webhooks."""
        leases = self.registry.leases().items()
        return sorted({lease.holder for name, lease in leases if name.startswith("webhook/")})

    def close(self) -> None:
        for each in self.gateways:
            each.resume()
            each.kill()
        self.log.close()
        self.registry.close()


def _result(n: int) -> bytes:
    return b'{"_id":"e%d","_src":"trips_raw/%d:%d","_time":"2026-01-01T00:00:00.000000Z","n":%d}' % (n, n % 2, n, n)


class Inboxes:
    """A receiver of webhooks that keeps the messages of each path in the order in which they came."""

    def __init__(self) -> None:
        self.messages: dict[str, list[tuple[str, int]]] = defaultdict(list)
        """Pairs of `webhook-id` and number, by path."""
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[Inboxes]:
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                event: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
                messages[self.path].append((self.headers["webhook-id"], event["data"]["n"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
