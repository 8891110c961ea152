"""A handful of subscribers, for the demo: real ones, over real sockets, that note how old each event is."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.cli.demo.webhook_receiver import receiver
from tidegate.errors import ClientError
from tidegate.model import timestamps

LAST_S = 5.0
"""Of which latencies are told: before that the JVM compiles, and what came meanwhile is worked off."""
_WAIT_S = 5.0


@dataclass
class Listener:
    """One subscriber, and what it got."""

    kind: str
    service: str
    filter: str
    events: int = 0
    _ages_ms: deque[tuple[float, float]] = field(default_factory=deque)
    """When each of the last events came, and how old it was then."""

    def note(self, moment: str | None) -> None:
        """Take in an event that happened at a moment."""
        self.events += 1
        happened = timestamps.from_text(moment) if moment else None
        if happened is not None:
            now = time.time()
            self._ages_ms.append((now, now * 1e3 - happened / 1e3))
            while self._ages_ms[0][0] < now - LAST_S:
                self._ages_ms.popleft()

    def told(self) -> dict[str, Any]:
        """What it got, in numbers."""
        ages = sorted(age for _, age in self._ages_ms)
        found: dict[str, Any] = {"kind": self.kind, "service": self.service, "filter": self.filter}
        found["events"] = self.events
        if ages:
            found |= {"p50_ms": ages[len(ages) // 2], "p99_ms": ages[min(len(ages) - 1, len(ages) * 99 // 100)]}
        return found


class Audience:
    """Subscribers in threads, until `stop`."""

    def __init__(self, url: str) -> None:
        self._url, self._stop = url, threading.Event()
        self.listeners = [
            Listener("SSE", "gps", "speed > 60"),
            Listener("SSE", "gps", "(longitude, latitude) INSIDE CIRCLE(116.4, 39.9, 5000)"),
            Listener("SSE", "speeding", ""),
            Listener("WebSocket", "gps", "satellites >= 9"),
            Listener("polling", "gps", "speed < 1"),
            Listener("webhook", "gps", "speed > 80"),
        ]
        how: dict[str, Callable[[Listener], None]] = {
            "SSE": self._sse,
            "polling": self._poll,
            "WebSocket": self._socket,
            "webhook": self._webhook,
        }
        self._threads = [
            threading.Thread(target=self._patiently, args=(how[each.kind], each), daemon=True)
            for each in self.listeners
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let everybody leave."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _WAIT_S)

    def _patiently(self, listen: Callable[[Listener], None], listener: Listener) -> None:
        while not self._stop.is_set():
            try:
                listen(listener)
            except (ClientError, OSError):  # the gateway is about to end, or has just begun
                self._stop.wait(0.2)

    def _sse(self, listener: Listener) -> None:
        from tidegate.client import Client

        with (
            Client(self._url) as client,
            client.subscribe(listener.service, listener.filter or None, idle=1.0, on_notice=lambda _: None) as events,
        ):
            for event in events:
                listener.note(event.time)
                if self._stop.is_set():
                    return

    def _poll(self, listener: Listener) -> None:
        from tidegate.client import Client

        with Client(self._url) as client:
            cursor = None
            while not self._stop.is_set():
                page = client.events(listener.service, listener.filter, cursor=cursor, wait=_WAIT_S)
                cursor = page.cursor
                for event in page.events:
                    listener.note(event.time)

    def _socket(self, listener: Listener) -> None:
        from websockets.sync.client import connect

        address = f"{self._url.replace('http', 'ws', 1)}/v1/events"
        with connect(address, subprotocols=["tidegate.v1"]) as socket:  # type: ignore[list-item]
            said = {"op": "subscribe", "id": "a", "service": listener.service, "filter": listener.filter}
            socket.send(json.dumps(said))
            while not self._stop.is_set():
                try:
                    told = json.loads(socket.recv(timeout=1.0))
                except TimeoutError:
                    continue
                if told["op"] == "event":
                    listener.note(told["event"].get("time"))

    def _webhook(self, listener: Listener) -> None:
        import httpx

        with (
            receiver(lambda event: listener.note(event.get("time"))) as url,
            httpx.Client(base_url=f"{self._url}/v1", timeout=_WAIT_S) as gateway,
        ):
            wanted = {"filter": listener.filter, "deliver": {"webhook": {"url": url, "batch": 100}}}
            try:
                made = gateway.post(f"/services/{listener.service}/subscriptions", json=wanted).raise_for_status()
                self._stop.wait()
                gateway.delete(f"/subscriptions/{made.json()['id']}")
            except httpx.HTTPError as error:
                raise ClientError(f"the webhook: {error}") from error
