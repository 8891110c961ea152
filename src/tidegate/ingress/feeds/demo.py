"""Built-in generators for demos and tests: taxis that report positions, and cameras that read number plates.

Generators are seeded: the same calls with the same times return the same events. The feed calls its generator every
five milliseconds for the events that are due at its rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.errors import SourceError, did_you_mean
from tidegate.ingress.feeds.feed import FeedRequest
from tidegate.ingress.raw_streams import Input, RawStreamWriter
from tidegate.logs.clock import Clock, SystemClock
from tidegate.model import Schema, timestamps
from tidegate.services.definitions import Demo

TICK_S = 0.005
"""Interval of appends: at 50,000 events per second, 250 at a time."""
MAX_LAG_S = 1.0
"""A feed that is late by more than this skips events, so that no burst follows a suspended machine."""

GPS = Schema(
    {
        "vid": "string",
        "time": "timestamp",
        "longitude": "float64",
        "latitude": "float64",
        "speed": "float64",
        "direction": "float64",
        "satellites": "int32",
    },
    event_time="time",
)
ANPR = Schema({"cid": "string", "vid": "string", "time": "timestamp"}, event_time="time")

_CENTRE = 116.397, 39.908
_DEGREE_KM = 85.4, 111.2
"""Kilometres per degree of longitude and of latitude, at Beijing."""

_GPS_REST = b'","longitude":%.6f,"latitude":%.6f,"speed":%.1f,"direction":%.1f,"satellites":%d}'

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class GeneratedEvents:
    """Events as JSON, and for each attribute that names an entity (a vehicle, a camera) the index of that entity."""

    records: list[bytes]
    entities: Mapping[str, Numbers]


class Generator(Protocol):
    """Generates events. Times of successive calls must not decrease."""

    schema: Schema
    names: dict[str, list[str]]
    """The values of each attribute that names entities, by index."""

    def events(self, count: int, now: int) -> GeneratedEvents:
        """Return `count` events at the time `now`, in microseconds."""


def plate(n: int) -> str:
    """Return the number plate of the nth vehicle; one in five is from Tianjin."""
    return f"{'BJ' if n % 5 else 'TJ'}{n:05d}"


class Gps:
    """Taxis around Beijing, on streets that run north and east; they report in turn.

    One report in two hundred is wrong: position (0, 0), a latitude above 90, or a negative speed.
    """

    schema = GPS
    WRONG = 0.005

    def __init__(self, seed: int = 7, vehicles: int = 2_000) -> None:
        self._random = random = np.random.default_rng(seed)
        self.names = {"vid": [plate(n) for n in range(vehicles)]}
        self._prefixes = [f'{{"vid":"{name}","time":"'.encode() for name in self.names["vid"]]
        self._place = random.normal(_CENTRE, (0.12, 0.09), (vehicles, 2))
        self._street = random.integers(0, 4, vehicles)
        self._speed = random.gamma(6.0, 7.0, vehicles)
        self._seen: Numbers = np.full(vehicles, -1, dtype=np.int64)
        self._order = random.permutation(vehicles)
        self._next = 0

    def events(self, count: int, now: int) -> GeneratedEvents:
        """Return reports of the next taxis."""
        parts = []
        while count > 0:  # a taxi reports once per round
            indices = self._order[self._next : self._next + count]
            self._next = (self._next + len(indices)) % len(self._order)
            count -= len(indices)
            parts.append((indices, self._report(indices, now)))
        if len(parts) == 1:
            return GeneratedEvents(parts[0][1], {"vid": parts[0][0]})
        everyone = np.concatenate([indices for indices, _ in parts]) if parts else np.empty(0, dtype=np.int64)
        return GeneratedEvents([record for _, records in parts for record in records], {"vid": everyone})

    def _report(self, indices: Numbers, now: int) -> list[bytes]:
        heading = self._drive(indices, now)
        longitude, latitude = self._place[indices, 0], self._place[indices, 1]
        speed = self._speed[indices]
        noise = self._random.random(len(indices))
        wrong = np.flatnonzero(noise < self.WRONG)
        for n in wrong:
            match int(noise[n] / self.WRONG * 3):
                case 0:
                    longitude[n] = latitude[n] = 0.0
                case 1:
                    latitude[n] = 91.0 + latitude[n]
                case _:
                    speed[n] = -1.0 - speed[n]
        satellites = 4 + (noise * 1e4).astype(np.int64) % 9
        rest = timestamps.to_text(now).encode() + _GPS_REST
        prefixes = self._prefixes
        columns = (indices, longitude, latitude, speed, heading, satellites)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [prefixes[n] + rest % tuple(values) for n, *values in rows]

    def _drive(self, indices: Numbers, now: int) -> Numbers:
        """Move taxis to their positions at `now`, and return their directions, in degrees from north."""
        size = len(indices)
        seen = self._seen[indices]
        gone_s = np.where(seen < 0, 0.0, np.minimum((now - seen) / 1e6, 120.0))
        self._seen[indices] = now
        noise = self._random.random((3, size))
        turns = noise[0] < 1 - np.exp(-gone_s / 40)  # turns at a crossing about every 40 s
        street = (self._street[indices] + np.where(turns, np.where(noise[1] < 0.5, 1, 3), 0)) % 4
        street = self._inwards(indices, street)
        self._street[indices] = street
        # Speeds return to 38 km/h within about a minute. Taxis slow down when they turn.
        keep = np.exp(-gone_s / 50)
        speed = 38 + (self._speed[indices] - 38) * keep + (noise[2] - 0.5) * 60 * np.sqrt(1 - keep * keep)
        speed = np.clip(np.where(turns, speed * 0.4, speed), 0, 120)
        self._speed[indices] = speed
        heading = street * 90.0 + (noise[1] - 0.5) * 8  # 0 is north, 90 east
        angle = np.radians(heading)
        km = speed * gone_s / 3600
        self._place[indices, 0] += km * np.sin(angle) / _DEGREE_KM[0]
        self._place[indices, 1] += km * np.cos(angle) / _DEGREE_KM[1]
        return np.asarray(heading % 360)

    def _inwards(self, indices: Numbers, street: Numbers) -> Numbers:
        """Turn taxis that are far outside back to the centre, so that positions satisfy the constraint of the demo."""
        away = self._place[indices] - _CENTRE
        street = np.where(np.abs(away[:, 0]) > 0.45, np.where(away[:, 0] > 0, 3, 1), street)
        return np.where(np.abs(away[:, 1]) > 0.35, np.where(away[:, 1] > 0, 2, 0), street)


RINGS_KM = {2: 5.5, 3: 8.0, 4: 11.0, 5: 16.0, 6: 30.0}
"""Beijing's ring roads, and their distances from the centre."""
SPOKES = 24


def _cameras() -> dict[str, tuple[float, float]]:
    cameras = {}
    for ring, km in RINGS_KM.items():
        for spoke in range(SPOKES):
            angle = 2 * math.pi * spoke / SPOKES
            place = (
                round(_CENTRE[0] + km * math.sin(angle) / _DEGREE_KM[0], 6),
                round(_CENTRE[1] + km * math.cos(angle) / _DEGREE_KM[1], 6),
            )
            cameras[f"CAM{ring:02d}{spoke:02d}"] = place
    return cameras


CAMERAS: Mapping[str, tuple[float, float]] = _cameras()
"""Longitude and latitude of each camera: one wherever a ring road meets a radial avenue."""


class Anpr:
    """Cameras that read the plates of passing vehicles. Some vehicles travel together, as a party.

    Time advances in slots. A vehicle takes 30 to 89 slots to the next camera, so about one vehicle in sixty passes a
    camera in each slot. Route and duration are a hash of the party and of the number of cameras passed: the members of
    a party take the same route, one or two slots apart.
    """

    schema = ANPR
    LEG = 30, 60
    """The shortest time between two cameras in slots, and the number of different times."""

    def __init__(self, seed: int = 7, vehicles: int = 6_000) -> None:
        random = np.random.default_rng(seed)
        self.names = {"cid": list(CAMERAS), "vid": [plate(n) for n in range(vehicles)]}
        self._prefixes = [f'{{"cid":"{name}","vid":"'.encode() for name in self.names["cid"]]
        self._plates = [f'{name}","time":"'.encode() for name in self.names["vid"]]
        self.party = self._parties(vehicles)
        self._salt = np.uint64(random.integers(0, 2**63))
        behind = np.arange(vehicles) - np.searchsorted(self.party, self.party)
        leaders = random.integers(0, len(CAMERAS), vehicles)[self.party], random.integers(0, 4, vehicles)[self.party]
        self._ring, self._spoke, self._way = leaders[0] // SPOKES, leaders[0] % SPOKES, leaders[1]
        self._steps = np.zeros(vehicles, dtype=np.uint64)
        size = sum(self.LEG) + 8
        self._slots: list[list[Numbers]] = [[] for _ in range(size)]
        self._now = 0
        self._schedule(np.arange(vehicles), random.integers(0, sum(self.LEG), vehicles)[self.party] + behind)
        self._waiting: Numbers = np.empty((2, 0), dtype=np.int64)

    @staticmethod
    def _parties(vehicles: int) -> Numbers:
        """Return the party of each vehicle: of each twenty vehicles the first three are one, the next two another."""
        n = np.arange(vehicles)
        place = n % 20
        return np.where(place < 3, n - place, np.where(place < 5, n - place + 3, n))

    def events(self, count: int, now: int) -> GeneratedEvents:
        """Return the next passages of vehicles at cameras."""
        waiting = [self._waiting]
        available = self._waiting.shape[1]
        while available < count:
            passed = self._advance_slot()
            available += passed.shape[1]
            waiting.append(passed)
        both = np.concatenate(waiting, axis=1)
        now_, self._waiting = both[:, :count], both[:, count:]
        prefixes, plates, back = self._prefixes, self._plates, timestamps.to_text(now).encode() + b'"}'
        rows = zip(now_[0].tolist(), now_[1].tolist(), strict=True)
        return GeneratedEvents([prefixes[c] + plates[v] + back for c, v in rows], {"cid": now_[0], "vid": now_[1]})

    def _advance_slot(self) -> Numbers:
        """Advance by one slot, and return the cameras and vehicles of its passages."""
        slots = self._slots[self._now % len(self._slots)]
        indices = np.concatenate(slots) if slots else np.empty(0, dtype=np.int64)
        slots.clear()
        self._now += 1
        cameras = self._ring[indices] * SPOKES + self._spoke[indices]
        self._schedule(indices, self._choose_next_camera(indices))
        return np.stack([cameras, indices])

    def _choose_next_camera(self, indices: Numbers) -> Numbers:
        """Choose the next camera of vehicles, and return how many slots each takes to reach it."""
        noise = _hash64(
            self.party[indices].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + self._steps[indices] + self._salt
        )
        self._steps[indices] += np.uint64(1)
        turn = np.array([0, 0, 0, 0, 0, 0, 1, 3])[(noise >> np.uint64(8)).astype(np.int64) & 7]
        way = (self._way[indices] + turn) % 4  # 0 clockwise, 1 outwards, 2 back, 3 inwards
        ring = self._ring[indices]
        way = np.where((way == 1) & (ring == len(RINGS_KM) - 1) | (way == 3) & (ring == 0), 0, way)
        self._way[indices] = way
        self._ring[indices] = ring + np.array([0, 1, 0, -1])[way]
        self._spoke[indices] = (self._spoke[indices] + np.array([1, 0, -1, 0])[way]) % SPOKES
        return self.LEG[0] + ((noise >> np.uint64(16)) % np.uint64(self.LEG[1])).astype(np.int64)

    def _schedule(self, indices: Numbers, later: Numbers) -> None:
        order = np.argsort(later, kind="stable")
        indices, later = indices[order], later[order]
        bounds = np.flatnonzero(np.diff(later)) + 1
        for part, begin in zip(np.split(indices, bounds), [0, *bounds.tolist()], strict=True):
            if len(part):
                self._slots[(self._now + int(later[begin])) % len(self._slots)].append(part)


def _hash64(bits: Numbers) -> Numbers:
    """Hash 64-bit numbers (splitmix64)."""
    with np.errstate(over="ignore"):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def make_generator(source: Demo) -> Generator:
    """Return the generator that a source names. Raises SourceError if there is none."""
    match source.kind:
        case "gps":
            return Gps(source.seed)
        case "anpr":
            # About a minute between cameras up to 3,000 events per second; at higher rates vehicles drive faster.
            return Anpr(source.seed, min(200_000, max(600, int(source.rate * 60))))
    known = "gps, anpr"
    raise SourceError(f"unknown demo {source.kind!r}{did_you_mean(source.kind, ['gps', 'anpr'])}; expected {known}")


def make_feed(request: FeedRequest) -> DemoFeed:
    """Build the feed of a stream with a built-in generator."""
    source = request.stream.source
    assert isinstance(source, Demo)
    return DemoFeed(source, request.writer, request.context.clock)


class DemoFeed:
    """Appends events of a generator at a rate."""

    def __init__(self, source: Demo, writer: RawStreamWriter, clock: Clock | None = None) -> None:
        if not 0 < source.rate < math.inf:
            raise SourceError(f"rate: expected events per second, above 0, not {source.rate!r}")
        self._rate, self._writer, self._clock = source.rate, writer, clock or SystemClock()
        self.generator = make_generator(source)
        names = self.generator.names.get(writer.stream.key or "")
        self._partition = None if names is None else np.array([int(writer.partition_of(name)) for name in names])
        """The partition of each entity that the key of the stream names; None: the key names no entity."""

    def run(self, stop: Event) -> None:
        """Append until `stop` is set. Counts due events from the start, so that delays do not add up."""
        clock, rate = self._clock, self._rate
        begin, appended = clock.monotonic(), 0
        while not stop.is_set():
            elapsed = clock.monotonic() - begin
            due = int(elapsed * rate) - appended
            if due > max(1.0, MAX_LAG_S * rate):
                begin, appended, due = begin + elapsed - MAX_LAG_S, 0, int(MAX_LAG_S * rate)
            if due:
                self.append(due)
                appended += due
            # Wait for the next tick, or for the next event if that is later.
            tick = (int(elapsed / TICK_S + 1e-3) + 1) * TICK_S
            wait = max((appended + 1) / rate, tick) - (clock.monotonic() - begin)
            clock.wait(stop, wait)

    def append(self, count: int) -> None:
        """Append `count` events with the current time."""
        generated = self.generator.events(count, self._clock.now())
        writer = self._writer
        if len(writer.partitions) == 1:
            writer.append_to("0", generated.records)
        elif self._partition is None:
            writer.append_inputs(Input(record) for record in generated.records)
        else:
            assert writer.stream.key is not None
            places = self._partition[generated.entities[writer.stream.key]]
            for n, partition in enumerate(writer.partitions):
                chosen = np.flatnonzero(places == n).tolist()
                writer.append_to(partition, [generated.records[i] for i in chosen])
