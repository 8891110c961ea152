"""Reads documents of plain values, such as parsed YAML, and collects all problems on the way.

A read method that finds a bad value reports it and returns a placeholder of the right type, so that reading can
continue. The caller must not use the result if there are problems.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tidegate.errors import DefinitionError, DefinitionProblem, did_you_mean
from tidegate.model import units
from tidegate.model.events import show

NONE: Mapping[Any, Any] = MappingProxyType({})
"""An empty map that can't be changed, for defaults."""

Path = tuple[str | int, ...]
"""A position in definitions: `("services", "gps", "pipeline", 0, "merge")`."""


@dataclass(frozen=True, slots=True)
class Place:
    """The file and line that something was read from."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


MAX_PROBLEMS = 100
"""The largest number of problems per document; each one may cost a search for similar names."""
MAX_PATH_LENGTH, MAX_MESSAGE_LENGTH = 200, 500
"""The longest path and message of a problem, in characters: names in a document can have any length."""


class Findings:
    """Collects the problems of a document. `places` gives them a file and a line."""

    def __init__(self, places: Mapping[Path, Place] = NONE, file: str | None = None) -> None:
        self.places = dict(places)
        self.file = file
        self.problems: list[DefinitionProblem] = []

    def report(self, path: Path, message: str) -> None:
        """Report a problem at a path. A path without a place gets that of its nearest parent.

        Raises `DefinitionError` with all problems if there are `MAX_PROBLEMS`.
        """
        place = next((self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places), None)
        file, line = (self.file, None) if place is None else (place.file, place.line)
        shown = _shortened(path_text(path), MAX_PATH_LENGTH)
        self.problems.append(DefinitionProblem(shown, _shortened(message, MAX_MESSAGE_LENGTH), file, line))
        if len(self.problems) >= MAX_PROBLEMS:
            more = f"there may be more problems; these are the first {MAX_PROBLEMS}"
            raise DefinitionError([*self.problems, DefinitionProblem("", more, file)])


def _shortened(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def path_text(path: Path) -> str:
    """Return a path as error messages show it.

    >>> path_text(("services", "gps", "pipeline", 0, "merge"))
    'services.gps.pipeline[0].merge'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Spot:
    """One value of a document, with its path and the collector of problems."""

    value: Any
    path: Path
    findings: Findings

    def report(self, message: str) -> None:
        """Report a problem with this value."""
        self.findings.report(self.path, message)

    def refuse(self, expected: str, hint: str = "") -> None:
        """Report that something else was expected instead of this value."""
        shown = "nothing" if self.value is None else show(self.value)
        self.report(f"expected {expected}, not {shown}{hint}")

    def at(self, key: str | int, value: Any) -> Spot:
        """Return the spot of a value inside this one."""
        return Spot(value, (*self.path, key), self.findings)

    def pairs(self, expected: str) -> dict[str, Spot]:
        """Return the entries of a map with arbitrary keys."""
        if not isinstance(self.value, Mapping):
            self.refuse(expected)
            return {}
        spots: dict[str, Spot] = {}
        for key, value in self.value.items():
            if isinstance(key, str):
                spots[key] = self.at(key, value)
            else:
                self.report(f"expected keys that are text, not {show(key)}")
        return spots

    def entries(self, keys: Collection[str], expected: str) -> dict[str, Spot]:
        """Return the entries of a map with known `keys`, without nulls; report other keys."""
        spots = self.pairs(expected)
        for key in spots:
            if key not in keys:
                hint = did_you_mean(key, keys) or f"; expected one of {', '.join(keys)}"
                spots[key].report(f"unknown key {key!r}{hint}")
        return {key: spot for key, spot in spots.items() if key in keys and spot.value is not None}

    def items(self, expected: str) -> list[Spot]:
        """Return the items of a list."""
        if isinstance(self.value, str | Mapping) or not isinstance(self.value, Sequence):
            self.refuse(expected)
            return []
        return [self.at(n, value) for n, value in enumerate(self.value)]

    def count_values(self, limit: int) -> int:
        """Return the number of nested values, including this one; stops counting above `limit`."""
        count, level = 1, [self.value]
        while level and count <= limit:
            level = [
                inner
                for outer in level
                if isinstance(outer, Mapping | list)
                for inner in (outer.values() if isinstance(outer, Mapping) else outer)
            ]
            count += len(level)
        return count

    def text(self, expected: str) -> str:
        """Return a text that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            self.refuse(expected)
            return ""
        return self.value

    def texts(self, expected: str) -> tuple[str, ...]:
        """Return a list of texts; one text is a list of one."""
        if isinstance(self.value, str):
            return (self.text(expected),)
        return tuple(item.text(expected) for item in self.items(expected))

    def truth(self) -> bool:
        """Return a boolean."""
        if not isinstance(self.value, bool):
            self.refuse("true or false")
        return bool(self.value)

    def whole(self, expected: str, low: int, high: int = 2**53) -> int:
        """Return an integer from `low` to `high`."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not low <= self.value <= high:
            self.refuse(expected)
            return low
        return self.value

    def number(self, expected: str, low: float, high: float, *, above: bool = False) -> float:
        """Return a number from `low` to `high`; with `above`, `low` itself is excluded."""
        value = self.value
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            self.refuse(expected)
            return high
        if above and value == low:
            self.refuse(expected)
        return float(value)

    def seconds(self, *, zero: bool = False) -> float:
        """Return a duration in seconds; 0 is allowed only with `zero`."""
        duration_s = units.seconds(self.value) if isinstance(self.value, str) else None
        if zero and self.value == 0 and not isinstance(self.value, bool):
            duration_s = 0.0
        if duration_s is None or (duration_s == 0 and not zero):
            self.refuse("a length of time such as 50ms, 10s, 2m, 24h or 7d")
            return 1.0
        return duration_s

    def size(self) -> int:
        """Return a size in bytes."""
        size_bytes = units.size_bytes(self.value) if isinstance(self.value, str) else None
        if not size_bytes:
            self.refuse("a size such as 10MB or 1GB")
            return 1
        return size_bytes

    def choice(self, options: Sequence[str]) -> str:
        """Return one of the `options`."""
        if self.value not in options:
            hint = did_you_mean(self.value, options) if isinstance(self.value, str) else ""
            self.refuse(f"one of {', '.join(options)}", hint)
            return options[0]
        return str(self.value)
