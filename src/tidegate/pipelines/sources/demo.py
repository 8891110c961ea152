"""Built-in generators: taxis that report where they are, cameras that read number plates.

Seeded: a generator that is asked for the same numbers of events at the same
moments gives the same events. The feed asks for as many as the rate says are
due, every five milliseconds.
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
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.intake import Input, Intake
from tidegate.model import Schema, timestamps
from tidegate.services.definitions import Demo

TICK_S = 0.005
"""How often events are given: at 50,000 a second, 250 at a time."""
LAG_S = 1.0
"""A feed that was held up longer leaves out what was due before: no burst after a sleep."""

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
"""Of longitude and of latitude, at Beijing."""

_GPS_REST = b'","longitude":%.6f,"latitude":%.6f,"speed":%.1f,"direction":%.1f,"satellites":%d}'

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Made:
    """Some events as JSON, and which of the generator's entities each attribute names in them."""

    records: list[bytes]
    entities: Mapping[str, Numbers]


class Generator(Protocol):
    """Makes events, any number at any moment; moments don't go back."""

    schema: Schema
    names: dict[str, list[str]]
    """By attribute: the entities that it names."""

    def events(self, count: int, now: int) -> Made:
        """So many events of one moment, in microseconds."""


def plate(n: int) -> str:
    """The number plate of the nth vehicle; one in five is from Tianjin."""
    return f"{'BJ' if n % 5 else 'TJ'}{n:05d}"


class Gps:
    """Taxis around Beijing, on streets that run north and east; they report in turn.

    One report in two hundred is wrong: no fix (0, 0), a latitude beyond the pole,
    a speed below 0.
    """

    schema = GPS
    WRONG = 0.005

    def __init__(self, seed: int = 7, vehicles: int = 2_000) -> None:
        self._chance = chance = np.random.default_rng(seed)
        self.names = {"vid": [plate(n) for n in range(vehicles)]}
        self._fronts = [f'{{"vid":"{name}","time":"'.encode() for name in self.names["vid"]]
        self._place = chance.normal(_CENTRE, (0.12, 0.09), (vehicles, 2))
        self._street = chance.integers(0, 4, vehicles)
        self._speed = chance.gamma(6.0, 7.0, vehicles)
        self._seen: Numbers = np.full(vehicles, -1, dtype=np.int64)
        self._order = chance.permutation(vehicles)
        self._next = 0

    def events(self, count: int, now: int) -> Made:
        """Reports of the taxis whose turn it is."""
        parts = []
        while count > 0:  # a taxi reports once a round
            who = self._order[self._next : self._next + count]
            self._next = (self._next + len(who)) % len(self._order)
            count -= len(who)
            parts.append((who, self._report(who, now)))
        if len(parts) == 1:
            return Made(parts[0][1], {"vid": parts[0][0]})
        everyone = np.concatenate([who for who, _ in parts]) if parts else np.empty(0, dtype=np.int64)
        return Made([record for _, records in parts for record in records], {"vid": everyone})

    def _report(self, who: Numbers, now: int) -> list[bytes]:
        heading = self._drive(who, now)
        longitude, latitude = self._place[who, 0], self._place[who, 1]
        speed = self._speed[who]
        luck = self._chance.random(len(who))
        wrong = np.flatnonzero(luck < self.WRONG)
        for n in wrong:
            match int(luck[n] / self.WRONG * 3):
                case 0:
                    longitude[n] = latitude[n] = 0.0
                case 1:
                    latitude[n] = 91.0 + latitude[n]
                case _:
                    speed[n] = -1.0 - speed[n]
        satellites = 4 + (luck * 1e4).astype(np.int64) % 9
        rest = timestamps.to_text(now).encode() + _GPS_REST
        fronts = self._fronts
        columns = (who, longitude, latitude, speed, heading, satellites)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [fronts[n] + rest % tuple(values) for n, *values in rows]

    def _drive(self, who: Numbers, now: int) -> Numbers:
        """Move some taxis to where they are now; give their directions, in degrees from north."""
        size = len(who)
        seen = self._seen[who]
        gone_s = np.where(seen < 0, 0.0, np.minimum((now - seen) / 1e6, 120.0))
        self._seen[who] = now
        luck = self._chance.random((3, size))
        turns = luck[0] < 1 - np.exp(-gone_s / 40)  # a crossing where it turns, every 40 s or so
        street = (self._street[who] + np.where(turns, np.where(luck[1] < 0.5, 1, 3), 0)) % 4
        street = self._inwards(who, street)
        self._street[who] = street
        # Speeds fall back to 38 km/h within a minute or so; a red light now and then.
        keep = np.exp(-gone_s / 50)
        speed = 38 + (self._speed[who] - 38) * keep + (luck[2] - 0.5) * 60 * np.sqrt(1 - keep * keep)
        speed = np.clip(np.where(turns, speed * 0.4, speed), 0, 120)
        self._speed[who] = speed
        heading = street * 90.0 + (luck[1] - 0.5) * 8  # 0 is north, 90 east
        angle = np.radians(heading)
        km = speed * gone_s / 3600
        self._place[who, 0] += km * np.sin(angle) / _DEGREE_KM[0]
        self._place[who, 1] += km * np.cos(angle) / _DEGREE_KM[1]
        return np.asarray(heading % 360)

    def _inwards(self, who: Numbers, street: Numbers) -> Numbers:
        """Taxis far outside turn back: the city has an edge, and the service a constraint."""
        away = self._place[who] - _CENTRE
        street = np.where(np.abs(away[:, 0]) > 0.45, np.where(away[:, 0] > 0, 3, 1), street)
        return np.where(np.abs(away[:, 1]) > 0.35, np.where(away[:, 1] > 0, 2, 0), street)


RINGS_KM = {2: 5.5, 3: 8.0, 4: 11.0, 5: 16.0, 6: 30.0}
"""Beijing's ring roads, and how far they are from the centre."""
SPOKES = 24


def _cameras() -> dict[str, tuple[float, float]]:
    found = {}
    for ring, km in RINGS_KM.items():
        for spoke in range(SPOKES):
            angle = 2 * math.pi * spoke / SPOKES
            place = (
                round(_CENTRE[0] + km * math.sin(angle) / _DEGREE_KM[0], 6),
                round(_CENTRE[1] + km * math.cos(angle) / _DEGREE_KM[1], 6),
            )
            found[f"CAM{ring:02d}{spoke:02d}"] = place
    return found


CAMERAS: Mapping[str, tuple[float, float]] = _cameras()
"""Longitude and latitude of each: one where a ring road meets an avenue out of the centre."""


class Anpr:
    """Cameras that read the plates of those who pass; some vehicles travel together.

    Time goes in slots. A vehicle needs 30 to 89 of them to the next camera, so
    about a sixtieth of all vehicles pass one in each. Where it goes, and how long
    it takes, is a hash of its party and of how many cameras it has passed: the
    members of a party take the same way, a slot or two apart.
    """

    schema = ANPR
    LEG = 30, 60
    """The shortest leg, and how many lengths there are."""

    def __init__(self, seed: int = 7, vehicles: int = 6_000) -> None:
        chance = np.random.default_rng(seed)
        self.names = {"cid": list(CAMERAS), "vid": [plate(n) for n in range(vehicles)]}
        self._fronts = [f'{{"cid":"{name}","vid":"'.encode() for name in self.names["cid"]]
        self._plates = [f'{name}","time":"'.encode() for name in self.names["vid"]]
        self.party = self._parties(vehicles)
        self._salt = np.uint64(chance.integers(0, 2**63))
        behind = np.arange(vehicles) - np.searchsorted(self.party, self.party)
        leaders = chance.integers(0, len(CAMERAS), vehicles)[self.party], chance.integers(0, 4, vehicles)[self.party]
        self._ring, self._spoke, self._way = leaders[0] // SPOKES, leaders[0] % SPOKES, leaders[1]
        self._steps = np.zeros(vehicles, dtype=np.uint64)
        size = sum(self.LEG) + 8
        self._slots: list[list[Numbers]] = [[] for _ in range(size)]
        self._now = 0
        self._put(np.arange(vehicles), chance.integers(0, sum(self.LEG), vehicles)[self.party] + behind)
        self._waiting: Numbers = np.empty((2, 0), dtype=np.int64)

    @staticmethod
    def _parties(vehicles: int) -> Numbers:
        """Of each twenty vehicles the first three travel together, and the next two; the others alone."""
        n = np.arange(vehicles)
        place = n % 20
        return np.where(place < 3, n - place, np.where(place < 5, n - place + 3, n))

    def events(self, count: int, now: int) -> Made:
        """The next vehicles at the next cameras."""
        waiting = [self._waiting]
        found = self._waiting.shape[1]
        while found < count:
            passed = self._slot()
            found += passed.shape[1]
            waiting.append(passed)
        both = np.concatenate(waiting, axis=1)
        now_, self._waiting = both[:, :count], both[:, count:]
        fronts, plates, back = self._fronts, self._plates, timestamps.to_text(now).encode() + b'"}'
        rows = zip(now_[0].tolist(), now_[1].tolist(), strict=True)
        return Made([fronts[c] + plates[v] + back for c, v in rows], {"cid": now_[0], "vid": now_[1]})

    def _slot(self) -> Numbers:
        """Let one slot pass: cameras and vehicles."""
        slots = self._slots[self._now % len(self._slots)]
        who = np.concatenate(slots) if slots else np.empty(0, dtype=np.int64)
        slots.clear()
        self._now += 1
        cameras = self._ring[who] * SPOKES + self._spoke[who]
        self._put(who, self._on(who))
        return np.stack([cameras, who])

    def _on(self, who: Numbers) -> Numbers:
        """Send vehicles to their next camera: how many slots it takes them."""
        luck = _mixed(self.party[who].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + self._steps[who] + self._salt)
        self._steps[who] += np.uint64(1)
        turn = np.array([0, 0, 0, 0, 0, 0, 1, 3])[(luck >> np.uint64(8)).astype(np.int64) & 7]
        way = (self._way[who] + turn) % 4  # 0 clockwise, 1 outwards, 2 back, 3 inwards
        ring = self._ring[who]
        way = np.where((way == 1) & (ring == len(RINGS_KM) - 1) | (way == 3) & (ring == 0), 0, way)
        self._way[who] = way
        self._ring[who] = ring + np.array([0, 1, 0, -1])[way]
        self._spoke[who] = (self._spoke[who] + np.array([1, 0, -1, 0])[way]) % SPOKES
        return self.LEG[0] + ((luck >> np.uint64(16)) % np.uint64(self.LEG[1])).astype(np.int64)

    def _put(self, who: Numbers, later: Numbers) -> None:
        order = np.argsort(later, kind="stable")
        who, later = who[order], later[order]
        bounds = np.flatnonzero(np.diff(later)) + 1
        for part, begin in zip(np.split(who, bounds), [0, *bounds.tolist()], strict=True):
            if len(part):
                self._slots[(self._now + int(later[begin])) % len(self._slots)].append(part)


def _mixed(bits: Numbers) -> Numbers:
    """Scramble 64 bits (splitmix64)."""
    with np.errstate(over="ignore"):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def make_generator(source: Demo) -> Generator:
    """The generator that a source names."""
    match source.kind:
        case "gps":
            return Gps(source.seed)
        case "anpr":
            # A minute or so from camera to camera, up to 3,000 events a second; beyond, they drive faster.
            return Anpr(source.seed, min(200_000, max(600, int(source.rate * 60))))
    known = "gps, anpr"
    raise SourceError(f"unknown demo {source.kind!r}{did_you_mean(source.kind, ['gps', 'anpr'])}; expected {known}")


class DemoFeed:
    """Appends what a generator makes, at a rate."""

    def __init__(self, source: Demo, intake: Intake, clock: Clock | None = None) -> None:
        if not 0 < source.rate < math.inf:
            raise SourceError(f"rate: expected events a second, above 0, not {source.rate!r}")
        self._rate, self._intake, self._clock = source.rate, intake, clock or SystemClock()
        self.generator = make_generator(source)
        names = self.generator.names.get(intake.stream.key or "")
        self._partition = None if names is None else np.array([int(intake.partition_of(name)) for name in names])
        """Of each entity that the stream's key names."""

    def run(self, stop: Event) -> None:
        """Append until stopped: what is due since the start, less what was given, so that no tick's delay adds up."""
        clock, rate = self._clock, self._rate
        begin, given = clock.monotonic(), 0
        while not stop.is_set():
            elapsed = clock.monotonic() - begin
            due = int(elapsed * rate) - given
            if due > max(1.0, LAG_S * rate):
                begin, given, due = begin + elapsed - LAG_S, 0, int(LAG_S * rate)
            if due:
                self.give(due)
                given += due
            # The next tick, or the moment at which the next event is due where that is later.
            tick = (int(elapsed / TICK_S + 1e-3) + 1) * TICK_S
            wait = max((given + 1) / rate, tick) - (clock.monotonic() - begin)
            clock.wait(stop, wait)

    def give(self, count: int) -> None:
        """Append some events of this moment."""
        made = self.generator.events(count, self._clock.now())
        intake = self._intake
        if len(intake.partitions) == 1:
            intake.append("0", made.records)
        elif self._partition is None:
            intake.take(Input(record) for record in made.records)
        else:
            assert intake.stream.key is not None
            places = self._partition[made.entities[intake.stream.key]]
            for n, partition in enumerate(intake.partitions):
                chosen = np.flatnonzero(places == n).tolist()
                intake.append(partition, [made.records[i] for i in chosen])
