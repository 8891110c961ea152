"""Reads documents of plain values part by part, and collects every problem on the way.

A part that can't be read is noted, and a stand-in of its type goes on: nobody
uses what was read from a part with problems.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.errors import DefinitionError, DefinitionProblem, did_you_mean
from tidegate.model import units
from tidegate.model.events import show
from tidegate.services.definitions import NONE, Path, Place

MAX_PROBLEMS = 100
"""Problems of one document that are collected; each may have cost a search for names that are near."""
MAX_PATH_LENGTH, MAX_MESSAGE_LENGTH = 200, 500
"""Characters of a problem's path and message: names in a document are as long as its author likes."""


class Findings:
    """The problems of some definitions; places make them point into a text."""

    def __init__(self, places: Mapping[Path, Place] = NONE, file: str | None = None) -> None:
        self.places = dict(places)
        self.file = file
        self.problems: list[DefinitionProblem] = []

    def blame(self, path: Path, message: str) -> None:
        """Note a problem; what stands nowhere itself stands where that does which holds it.

        Raises a `DefinitionError` with all of them when there are too many.
        """
        place = next((self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places), None)
        file, line = (self.file, None) if place is None else (place.file, place.line)
        shown = _shortened(path_text(path), MAX_PATH_LENGTH)
        self.problems.append(DefinitionProblem(shown, _shortened(message, MAX_MESSAGE_LENGTH), file, line))
        if len(self.problems) >= MAX_PROBLEMS:
            more = f"there may be more problems; these are the first {MAX_PROBLEMS}"
            raise DefinitionError([*self.problems, DefinitionProblem("", more, file)])


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def path_text(path: Path) -> str:
    """Write a path as messages show it.

    >>> path_text(("services", "gps", "pipeline", 0, "merge"))
    'services.gps.pipeline[0].merge'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Spot:
    """One value of a document, where it stands, and who collects what is wrong with it."""

    value: Any
    path: Path
    findings: Findings

    def blame(self, message: str) -> None:
        """Note a problem here."""
        self.findings.blame(self.path, message)

    def refuse(self, expected: str, hint: str = "") -> None:
        """Note that something else was expected here."""
        shown = "nothing" if self.value is None else show(self.value)
        self.blame(f"expected {expected}, not {shown}{hint}")

    def at(self, key: str | int, value: Any) -> Spot:
        """Give the spot of a value inside this one."""
        return Spot(value, (*self.path, key), self.findings)

    def pairs(self, expected: str) -> dict[str, Spot]:
        """Read a map of any names."""
        if not isinstance(self.value, Mapping):
            self.refuse(expected)
            return {}
        found: dict[str, Spot] = {}
        for key, value in self.value.items():
            if isinstance(key, str):
                found[key] = self.at(key, value)
            else:
                self.blame(f"expected keys that are text, not {show(key)}")
        return found

    def entries(self, known: Collection[str], expected: str) -> dict[str, Spot]:
        """Read a map of known keys; one that is null counts as not there."""
        found = self.pairs(expected)
        for key in found:
            if key not in known:
                hint = did_you_mean(key, known) or f"; expected one of {', '.join(known)}"
                found[key].blame(f"unknown key {key!r}{hint}")
        return {key: spot for key, spot in found.items() if key in known and spot.value is not None}

    def items(self, expected: str) -> list[Spot]:
        """Read a list."""
        if isinstance(self.value, str | Mapping) or not isinstance(self.value, Sequence):
            self.refuse(expected)
            return []
        return [self.at(n, value) for n, value in enumerate(self.value)]

    def count_values(self, most: int) -> int:
        """Count the values inside this one, itself included; stops behind `most`."""
        count, level = 1, [self.value]
        while level and count <= most:
            level = [
                inner
                for each in level
                if isinstance(each, Mapping | list)
                for inner in (each.values() if isinstance(each, Mapping) else each)
            ]
            count += len(level)
        return count

    def text(self, expected: str) -> str:
        """Read text that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            self.refuse(expected)
            return ""
        return self.value

    def texts(self, expected: str) -> tuple[str, ...]:
        """Read text, or a list of texts."""
        if isinstance(self.value, str):
            return (self.text(expected),)
        return tuple(each.text(expected) for each in self.items(expected))

    def truth(self) -> bool:
        """Read true or false."""
        if not isinstance(self.value, bool):
            self.refuse("true or false")
        return bool(self.value)

    def whole(self, expected: str, low: int, high: int = 2**53) -> int:
        """Read a whole number of a range."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not low <= self.value <= high:
            self.refuse(expected)
            return low
        return self.value

    def number(self, expected: str, low: float, high: float, *, above: bool = False) -> float:
        """Read a number of a range; `above`: its low end is not in it."""
        value = self.value
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            self.refuse(expected)
            return high
        if above and value == low:
            self.refuse(expected)
        return float(value)

    def seconds(self, *, zero: bool = False) -> float:
        """Read a length of time; `zero`: it may be none."""
        found = units.seconds(self.value) if isinstance(self.value, str) else None
        if zero and self.value == 0 and not isinstance(self.value, bool):
            found = 0.0
        if found is None or (found == 0 and not zero):
            self.refuse("a length of time such as 50ms, 10s, 2m, 24h or 7d")
            return 1.0
        return found

    def size(self) -> int:
        """Read a size in bytes."""
        found = units.size_bytes(self.value) if isinstance(self.value, str) else None
        if not found:
            self.refuse("a size such as 10MB or 1GB")
            return 1
        return found

    def choice(self, options: Sequence[str]) -> str:
        """Read one of some words."""
        if self.value not in options:
            hint = did_you_mean(self.value, options) if isinstance(self.value, str) else ""
            self.refuse(f"one of {', '.join(options)}", hint)
            return options[0]
        return str(self.value)
