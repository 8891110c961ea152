"""A city for the console: a gateway over a log that is written to as services would, and tells how they do."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.gateway.running import World
from tidegate.model import timestamps
from tidegate.pipelines import status

CITY = """
streams:
  gps_taxi:
    schema: {vid: string, speed: float64, longitude: float64, latitude: float64, time: timestamp}
    event_time: time
    key: vid
  cameras: {schema: {cid: string, vid: string, time: timestamp}, event_time: time}
services:
  gps:
    description: Positions of all vehicles, checked.
    from: gps_taxi
    constraints: {speed: ">= 0", longitude: "BETWEEN 115 AND 118"}
    qos: {latency_p99: 50ms}
    terms: {speed: {slow: "TRAPEZOID(0, 0, 15, 30)"}}
    themes: [land transport, traffic]
    properties: {price: 2, region: north}
  speeding:
    description: Who drives faster than the city allows.
    from: gps
    pipeline: [{filter: speed > 80}, {project: {vid: vid, time: time, kmh: "round(speed, 1)"}}]
    themes: [traffic]
    properties: {price: 7, region: north}
  flow:
    description: Vehicles a minute at each camera.
    from: cameras
    pipeline: [{aggregate: {count: flow, by: [cid], window: {length: 60s}, emit: final}}]
    themes: [traffic]
"""


class City(World):
    """Synthetic output of the services of a small city."""

    def __init__(self, folder: Path, text: str = CITY) -> None:
        super().__init__(folder, text)
        self.statuses = status.SCHEMA
        self.log.create(status.STREAM)
        self.log.create("gps.quarantine", ["gps_taxi.0"])
        self.log.create("gps_taxi", ["0"])
        self.log.append("gps_taxi", "0", [])  # opened before an output says that it has read what was never there
        self._random = random.Random(7)
        self._n = 0
        self._lock = threading.Lock()
        self._states: dict[str, status.Status] = {}

    def drive(self, count: int, **more: Any) -> list[dict[str, Any]]:
        """Events of `gps`, now."""
        made = []
        for _ in range(count):
            n, self._n = self._n, self._n + 1
            moment = timestamps.to_text(time.time_ns() // 1_000)
            turn = n / 40
            event = {
                "_id": f"gps_taxi:0:{n}",
                "_src": f"gps_taxi/0:{n}",
                "_time": moment,
                "vid": f"B{n % 20}",
                "speed": round(self._random.gauss(55, 18) % 130, 1),
                "longitude": round(116.397 + 0.12 * math.sin(turn) + self._random.gauss(0, 0.01), 5),
                "latitude": round(39.908 + 0.08 * math.cos(turn * 1.3) + self._random.gauss(0, 0.01), 5),
                "time": moment,
                **more,
            }
            made.append(event)
        self.log.append("gps", "gps_taxi.0", [json.dumps(each).encode() for each in made])
        return made

    def refuse(self, count: int) -> None:
        """Put events into the quarantine of `gps`."""
        for n in range(count):
            moment = timestamps.to_text(time.time_ns() // 1_000)
            event: dict[str, Any] = {"vid": f"B{n}", "time": moment, "longitude": 116.4, "latitude": 39.9}
            event["speed"] = -float(n + 1)
            at = self.log.end("gps_taxi").offsets["0"]
            self.log.append("gps_taxi", "0", [json.dumps(event).encode()])
            reason = f"speed: {event['speed']} violates speed >= 0"
            wrong = {"_id": f"gps_taxi:0:{at}", "_src": f"gps_taxi/0:{at}", "_time": moment, **event, "_reason": reason}
            self.log.append("gps.quarantine", "gps_taxi.0", [json.dumps(wrong).encode()])

    def tell(self, service: str, state: status.ServiceState = "running", **more: Any) -> None:
        """Say how a service does, as a runner would."""
        with self._lock:
            said = self._states.setdefault(service, status.Status(service, 1, state))
            said.state = state
            said.written += 1
            for name, value in more.items():
                setattr(said, name, value)
            self.log.append(status.STREAM, "0", [said.record(time.time_ns() // 1_000)])

    def tell_all(self, **more: Any) -> None:
        """Say of all services that they run."""
        simple: dict[str, Any] = {
            "mode": "real-time",
            "reason": "filters and projections alone: every record is handed on at once",
        }
        self.tell("gps", **simple, **self._figures(480, 470, 1.5, 4), quarantined=12, **more)
        self.tell("speeding", **simple, **self._figures(470, 38, 3, 9))
        windows: dict[str, Any] = {
            "mode": "micro-batch",
            "reason": "windows that emit once, at their end, need micro-batches",
        }
        self.tell("flow", **windows, **self._figures(200, 4, 310, 720), behind_bytes=18_000)

    def _figures(self, read: float, written: float, p50: float, p99: float) -> dict[str, Any]:
        about = {"read_per_s": read, "written_per_s": written, "latency_p50_ms": p50, "latency_p99_ms": p99}
        return {name: value * self._random.uniform(0.9, 1.1) for name, value in about.items()}

    @contextmanager
    def running(self) -> Iterator[City]:
        """Serve, and write `_status` every second, since a silent service counts as lost."""
        with super().running(), self._every(1.0, self._tell_well):
            yield self

    def _tell_well(self) -> None:
        for name in [name for name, said in self._states.items() if said.state == "running"]:
            self.tell(name)

    @contextmanager
    def lively(self, per_s: float = 200.0) -> Iterator[None]:
        """Drive, from a thread, while something is looked at."""
        with self._every(0.1, lambda: self.drive(round(per_s / 10))):
            yield

    @contextmanager
    def _every(self, pause_s: float, work: Callable[[], Any]) -> Iterator[None]:
        stop = threading.Event()

        def live() -> None:
            while not stop.wait(pause_s):
                work()

        thread = threading.Thread(target=live)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
