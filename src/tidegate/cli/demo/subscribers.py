"""The demo's subscribers: they use every kind of delivery over real sockets, and measure the age of each event."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.cli.demo.webhook_receiver import webhook_receiver
from tidegate.errors import ClientError
from tidegate.model import timestamps

LATENCY_WINDOW_S = 5.0
"""Latencies are of the last seconds only: at first the JVM compiles, and services have a backlog."""
_TIMEOUT_S = 5.0


@dataclass
class DemoSubscriber:
    """One subscriber with its counters. Its own thread updates them."""

    kind: str
    service: str
    filter: str
    events: int = 0
    _ages_ms: deque[tuple[float, float]] = field(default_factory=deque)
    """When each recent event arrived, and its age then."""

    def record(self, event_time: str | None) -> None:
        """Count an event, and record its age if it has a time."""
        self.events += 1
        event_time_us = timestamps.from_text(event_time) if event_time else None
        if event_time_us is not None:
            now = time.time()
            self._ages_ms.append((now, now * 1e3 - event_time_us / 1e3))
            while self._ages_ms[0][0] < now - LATENCY_WINDOW_S:
                self._ages_ms.popleft()

    def summary(self) -> dict[str, Any]:
        """Return the number of events, and percentiles of their age if events have arrived lately."""
        ages = sorted(age for _, age in self._ages_ms)
        summary: dict[str, Any] = {"kind": self.kind, "service": self.service, "filter": self.filter}
        summary["events"] = self.events
        if ages:
            summary |= {"p50_ms": ages[len(ages) // 2], "p99_ms": ages[min(len(ages) - 1, len(ages) * 99 // 100)]}
        return summary


class DemoSubscribers:
    """Subscribers of one gateway, each in a thread, from construction until `stop`."""

    def __init__(self, url: str) -> None:
        self._url, self._stop = url, threading.Event()
        self.subscribers = [
            DemoSubscriber("SSE", "gps", "speed > 60"),
            DemoSubscriber("SSE", "gps", "(longitude, latitude) INSIDE CIRCLE(116.4, 39.9, 5000)"),
            DemoSubscriber("SSE", "speeding", ""),
            DemoSubscriber("WebSocket", "gps", "satellites >= 9"),
            DemoSubscriber("polling", "gps", "speed < 1"),
            DemoSubscriber("webhook", "gps", "speed > 80"),
        ]
        receive: dict[str, Callable[[DemoSubscriber], None]] = {
            "SSE": self._sse,
            "polling": self._poll,
            "WebSocket": self._socket,
            "webhook": self._webhook,
        }
        self._threads = [
            threading.Thread(target=self._retry, args=(receive[subscriber.kind], subscriber), daemon=True)
            for subscriber in self.subscribers
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Disconnect all subscribers and wait for their threads."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT_S)

    def _retry(self, receive: Callable[[DemoSubscriber], None], subscriber: DemoSubscriber) -> None:
        while not self._stop.is_set():
            try:
                receive(subscriber)
            except (ClientError, OSError):  # the gateway is starting or stopping
                self._stop.wait(0.2)

    def _sse(self, subscriber: DemoSubscriber) -> None:
        from tidegate.client import Client

        with (
            Client(self._url) as client,
            client.subscribe(
                subscriber.service, subscriber.filter or None, idle=1.0, on_notice=lambda _: None
            ) as events,
        ):
            for event in events:
                subscriber.record(event.time)
                if self._stop.is_set():
                    return

    def _poll(self, subscriber: DemoSubscriber) -> None:
        from tidegate.client import Client

        with Client(self._url) as client:
            cursor = None
            while not self._stop.is_set():
                page = client.events(subscriber.service, subscriber.filter, cursor=cursor, wait=_TIMEOUT_S)
                cursor = page.cursor
                for event in page.events:
                    subscriber.record(event.time)

    def _socket(self, subscriber: DemoSubscriber) -> None:
        from websockets.sync.client import connect

        address = f"{self._url.replace('http', 'ws', 1)}/v1/events"
        with connect(address, subprotocols=["tidegate.v1"]) as socket:  # type: ignore[list-item]
            request = {"op": "subscribe", "id": "a", "service": subscriber.service, "filter": subscriber.filter}
            socket.send(json.dumps(request))
            while not self._stop.is_set():
                try:
                    message = json.loads(socket.recv(timeout=1.0))
                except TimeoutError:
                    continue
                if message["op"] == "event":
                    subscriber.record(message["event"].get("time"))

    def _webhook(self, subscriber: DemoSubscriber) -> None:
        import httpx

        with (
            webhook_receiver(lambda event: subscriber.record(event.get("time"))) as url,
            httpx.Client(base_url=f"{self._url}/v1", timeout=_TIMEOUT_S) as gateway,
        ):
            body = {"filter": subscriber.filter, "deliver": {"webhook": {"url": url, "batch": 100}}}
            try:
                created = gateway.post(f"/services/{subscriber.service}/subscriptions", json=body).raise_for_status()
                self._stop.wait()
                gateway.delete(f"/subscriptions/{created.json()['id']}")
            except httpx.HTTPError as error:
                raise ClientError(f"the demo's webhook failed: {error}") from error
