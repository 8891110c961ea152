"""Checks that spans can't express, applied to the events that pass all spans of a row.

A test of text (LIKE, MATCH, STRLIKE) runs once for each distinct text, and its answer is cached for the next batch.
Fuzzy groups and areas are evaluated by numba kernels; anything else by the filter itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

import numpy as np

from tidegate.filters import areas, evaluate, fuzzy
from tidegate.filters.membership import SLACK
from tidegate.filters.nodes import Group, Inside, Member, Path, Pattern, StrLike
from tidegate.filters.normalize import area_numbers
from tidegate.matching import kernels
from tidegate.matching.events import EventBatch
from tidegate.matching.rows import RowCheck

MAX_CACHED_ANSWERS = 2**24
"""Cached answers of text tests for one attribute of a segment: 16 MB."""

EXACT, CHECKED, FILTERED = range(3)
"""What candidates of a row need: nothing more, its checks, or its whole filter."""


_TEST, _GROUP, _AREA = range(3)


class Checks:
    """The checks of a segment's rows. Thread-safe."""

    def __init__(self, checks: Any) -> None:
        self.checks = checks
        """Checks of each row; None: evaluate the row's filter."""
        self.kind = np.array(
            [FILTERED if row_checks is None else CHECKED if row_checks else EXACT for row_checks in checks], np.uint8
        )
        self._tests: dict[Path, _TextTests] = {}
        self._groups, self._areas = _Groups(), _Areas()
        rows = np.flatnonzero(self.kind == CHECKED)
        self._slots = np.full((max((len(checks[r]) for r in rows), default=0), 3, len(checks)), -1, np.int32)
        """For each check of each row: its kind (test, group or area), the index of its path, and its number."""
        paths: dict[Path, int] = {}
        for row in rows:
            for slot, check in enumerate(checks[row]):
                if isinstance(check, Group):
                    self._slots[slot, :, row] = _GROUP, 0, self._groups.number(check)
                elif isinstance(check, Inside):
                    self._slots[slot, :, row] = _AREA, 0, self._areas.number(check)
                else:
                    path = subject(check)
                    place = paths.setdefault(path, len(paths))
                    self._slots[slot, :, row] = _TEST, place, self._tests.setdefault(path, _TextTests()).number(check)
        self._groups.finish()
        self._areas.finish()

    def __reduce__(self) -> tuple[object, ...]:
        return Checks, (self.checks,)

    @property
    def is_exact(self) -> bool:
        """True if no row has checks."""
        return not self.kind.any()

    @property
    def nbytes(self) -> int:
        """Memory of the checks and of cached answers."""
        return int(self.kind.nbytes + self._slots.nbytes + sum(tests.nbytes for tests in self._tests.values()))

    def passed(self, events: EventBatch, event: Any, row: Any) -> Any:
        """Return which (event, row) pairs pass all checks of the row."""
        passed = np.ones(len(event), dtype=bool)
        for kinds, places, numbers in self._slots:
            kind, number = kinds[row], numbers[row]
            for of_kind, tables in ((_GROUP, self._groups), (_AREA, self._areas)):
                pending = np.flatnonzero((kind == of_kind) & passed)
                if len(pending):
                    passed[pending] = tables.passed(events, event[pending], number[pending])
            for place, (path, tests) in enumerate(self._tests.items()):
                pending = np.flatnonzero((kind == _TEST) & (places[row] == place) & passed)
                if len(pending):
                    own, texts = events.texts(path)
                    passed[pending] = tests.passed(own[event[pending]], texts, number[pending])
        return passed


def subject(check: Pattern | StrLike) -> Path:
    """Return the field whose text is tested."""
    path = check.path if isinstance(check, StrLike) else check.subject
    assert isinstance(path, Path)
    return path


def _test(check: Pattern | StrLike) -> Callable[[str], bool]:
    """Return the test of one text, with its negation."""
    test = evaluate.strlike_test(check) if isinstance(check, StrLike) else evaluate.pattern_test(check)
    expected = not check.negated
    return lambda text: test(text) is expected


class _TextTests:
    """All tests of one attribute's text, and the answers so far."""

    def __init__(self) -> None:
        self._numbers: dict[RowCheck, int] = {}
        self._tests: list[Callable[[str], bool]] = []
        self._lock = Lock()
        self._places: dict[str, int] = {}
        """Column of each text in `_answers`."""
        self._answers = np.zeros((0, 0), np.uint8)
        """One line per test, one column per text: 0 unknown, 1 passed, 2 failed."""

    def number(self, check: Pattern | StrLike) -> int:
        """Return the number of a test; equal tests share one."""
        number = self._numbers.setdefault(check, len(self._tests))
        if number == len(self._tests):
            self._tests.append(_test(check))
        return number

    @property
    def nbytes(self) -> int:
        """Memory of the answers."""
        return int(self._answers.nbytes)

    def passed(self, own: Any, texts: list[str], number: Any) -> Any:
        """Return which (text, test) pairs pass; `own` has the index of a text, or -1 for none."""
        passed = np.zeros(len(own), dtype=bool)
        there = own >= 0
        place, answers = self._cached(texts)
        column, line = place[own[there]], number[there]
        answer = answers[line, column]
        missing = np.flatnonzero(answer == 0)
        if len(missing):
            key = line[missing].astype(np.int64) * len(texts) + own[there][missing]
            for pair in np.unique(key).tolist():
                test, text = divmod(pair, len(texts))
                answers[test, place[text]] = 1 if self._tests[test](texts[text]) else 2
            answer = answers[line, column]
        passed[there] = answer == 1
        return passed

    def _cached(self, texts: list[str]) -> tuple[Any, Any]:
        """Return the columns of some texts, and the answers that belong to these columns."""
        with self._lock:
            places, tests = self._places, len(self._tests)
            new = [text for text in texts if text not in places]
            if (len(places) + len(new)) * tests > MAX_CACHED_ANSWERS:
                places = self._places = {}
                self._answers = np.zeros((tests, 0), np.uint8)
                new = texts
            for text in new:
                places.setdefault(text, len(places))  # an Arrow dictionary may hold a text twice
            if len(places) > self._answers.shape[1] or self._answers.shape[0] != tests:
                room = np.zeros((tests, max(64, 2 * len(places))), np.uint8)
                before = self._answers
                room[: before.shape[0], : before.shape[1]] = before
                self._answers = room
            return np.fromiter(map(places.__getitem__, texts), np.int64, len(texts)), self._answers


_SHAPES = {"TRAPEZOID": kernels.TRAPEZOID, "BELL": kernels.BELL, "GAUSS": kernels.GAUSS, "S": kernels.S, "Z": kernels.Z}


class _Groups:
    """All fuzzy groups of a segment, as tables for a kernel."""

    def __init__(self) -> None:
        self._numbers: dict[Group, int] = {}
        self._columns: dict[Path, int] = {}
        self._first, self._items, self._groups = [0], [], []  # type: ignore[var-annotated]

    def number(self, group: Group) -> int:
        """Return the number of a group; equal groups share one."""
        number = self._numbers.setdefault(group, len(self._groups))
        if number == len(self._groups):
            limits = fuzzy.thresholds(group)
            inner = fuzzy.inner_box(group) or []
            for n, item in enumerate(group.items):
                assert isinstance(item.predicate, Member)
                column = self._columns.setdefault(item.predicate.path, len(self._columns))
                shape, numbers = _shape(item.predicate)
                cuts = inner[n][1]
                low, high = (cuts[0], cuts[1]) if cuts else ((0, np.inf, 0), (0, -np.inf, 0))
                box = -np.inf if low[0] else low[1], np.inf if high[0] else high[1]
                self._items.append((column, shape, *numbers, limits.betas[n], limits.weights[n], item.negated, *box))
            self._first.append(len(self._items))
            self._groups.append((limits.alpha, limits.minimum, limits.total, group.negated))
        return number

    def finish(self) -> None:
        """Build the tables once all groups are numbered."""
        self._tables = (
            np.array(self._first, np.int64),
            np.array(self._items, np.float64).reshape(-1, 11),
            np.array(self._groups, np.float64).reshape(-1, 4),
        )

    def passed(self, events: EventBatch, event: Any, group: Any) -> Any:
        """Return which (event, group) pairs reach the group's thresholds."""
        first, items, groups = self._tables
        columns = _numbers(events, self._columns)
        return kernels.grade(event.astype(np.int64), group.astype(np.int64), columns, first, items, groups, SLACK)


def _numbers(events: EventBatch, paths: Iterable[Path]) -> Any:
    """Return attributes as floats, one line each."""
    return np.array([events.numbers(path) for path in paths], np.float64).reshape(-1, events.size)


class _Areas:
    """All areas of a segment, as tables for a kernel."""

    def __init__(self) -> None:
        self._numbers: dict[Inside, int] = {}
        self._columns: dict[Path, int] = {}
        self._areas: list[tuple[float, ...]] = []
        self._first, self._corners = [0], []  # type: ignore[var-annotated]

    def number(self, inside: Inside) -> int:
        """Return the number of an area; equal areas share one."""
        number = self._numbers.setdefault(inside, len(self._areas))
        if number == len(self._areas):
            x = self._columns.setdefault(inside.longitude, len(self._columns))
            y = self._columns.setdefault(inside.latitude, len(self._columns))
            numbers = area_numbers(inside)
            kind, four = kernels.POLYGON, (0.0, 0.0, 0.0, 0.0)
            if inside.area.name == "BOX":
                west, south, east, north = numbers
                kind, four = kernels.BOX, (west, south, east, north)
            elif inside.area.name == "CIRCLE":
                longitude, latitude, metres = numbers
                middle = math.radians(longitude), math.radians(latitude)
                kind, four = kernels.CIRCLE, (*middle, math.cos(middle[1]), areas.circle_threshold(metres))
            else:
                self._corners += areas.corners(numbers)
            self._first.append(len(self._corners))
            self._areas.append((x, y, kind, inside.negated, *four))
        return number

    def finish(self) -> None:
        """Build the tables once all areas are numbered."""
        self._tables = (
            np.array(self._areas, np.float64).reshape(-1, 8),
            np.array(self._first, np.int64),
            np.array(self._corners, np.float64).reshape(-1, 2),
        )

    def passed(self, events: EventBatch, event: Any, area: Any) -> Any:
        """Return which (event, area) pairs have the event inside the area."""
        columns = _numbers(events, self._columns)
        return kernels.within(event.astype(np.int64), area.astype(np.int64), columns, *self._tables)


def _shape(member: Member) -> tuple[int, tuple[float, float, float, float]]:
    """Return the kernel's number of a membership function, and its numbers padded to four."""
    numbers = fuzzy.shape_numbers(member)
    match member.shape.name, numbers:
        case "TRIANGLE", (a, b, c):
            return kernels.TRAPEZOID, (a, b, b, c)
        case "RECTANGLE", (a, b):
            return kernels.TRAPEZOID, (a, a, b, b)
    a, b, c, d = (*numbers, 0.0, 0.0)[:4]
    return _SHAPES[member.shape.name], (a, b, c, d)
