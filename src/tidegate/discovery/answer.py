"""What a consumer gets: services, ranked, with the reasons; and what changed since the last time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tidegate.discovery.fits import Match, Reason
from tidegate.discovery.index import Given
from tidegate.discovery.quality import Certified


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of a service, as selection saw it."""

    value: float | None
    """None: neither measured nor promised."""
    measured: bool
    """Whether it was measured; else it is what the service promises."""
    weight: float
    adds: float
    """What it adds to the service's quality."""


@dataclass(frozen=True, slots=True)
class Found:
    """One service of an answer."""

    name: str
    rank: int
    score: float
    """Coverage, degree and quality, weighed: 0 to 1."""
    coverage: float | None
    """The share of the wanted attributes that it has; None: none were asked for."""
    likeness: float | None
    """How alike their names are."""
    degree: float | None
    """How well its properties fit the filter; None: there was none."""
    match: Match
    qos: float | None
    """W_QoS; None: nothing was said to matter."""
    missing: tuple[str, ...]
    """The wanted attributes that it has not."""
    promises: tuple[Certified, ...]
    """All that it promises, and what became of it."""
    why: tuple[str, ...]
    """In sentences."""
    given: tuple[Given, ...] = ()
    """Explained: what it has for each wanted attribute."""
    reasons: tuple[Reason, ...] = ()
    """Explained: what each part of the filter says of it."""
    figures: Mapping[str, Figure] | None = None
    """Explained: the metrics that matter or are limited."""

    @property
    def broken(self) -> tuple[Certified, ...]:
        """The promises that it does not keep."""
        return tuple(each for each in self.promises if each.verdict == "broken")


@dataclass(frozen=True, slots=True)
class Hint:
    """What may be wrong with a request, as the services are."""

    path: str
    """The part of the request: `attributes[2]`, `filter`."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Answer:
    """Services that fit a request, the best first."""

    results: tuple[Found, ...]
    total: int
    """How many fit, those beyond the limit included."""
    hints: tuple[Hint, ...]
    near: tuple[Found, ...]
    """Where nothing fits: what comes nearest to the filter."""
    left: Mapping[str, int]
    """How many services were left after each step: `services`, `present`, `attributes`, ..."""
    version: int
    """Of the directory that answered: it grows with every change."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON values."""
        found: dict[str, Any] = _plain(self)
        return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, slots=True)
class Changed:
    """A service that is still in the answer, and stands elsewhere or otherwise in it."""

    before: Found
    after: Found


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different between two answers to one request."""

    appeared: tuple[Found, ...]
    left: tuple[Found, ...]
    changed: tuple[Changed, ...]
    better: Found | None
    """The best, where it is another one and better than what was best, or is used, is now."""

    def __bool__(self) -> bool:
        return bool(self.appeared or self.left or self.changed)


def changes(before: Answer, after: Answer, *, used: str | None = None, margin: float = 0.01) -> Changes:
    """Compare two answers to one request, for whoever watches.

    Scores that moved by less than `margin` and broke no promise are no change: figures
    of quality move all the time. `used` is the service that the consumer has; without
    it, the one that was best. It is better where the best leads it by `margin`, or where
    it is gone.
    """
    old, new = ({each.name: each for each in answer.results} for answer in (before, after))
    changed = [
        Changed(old[each.name], each)
        for each in after.results
        if each.name in old and _differs(old[each.name], each, margin)
    ]
    return Changes(
        tuple(each for each in after.results if each.name not in old),
        tuple(each for each in before.results if each.name not in new),
        tuple(changed),
        _better(before, after, used, margin),
    )


def _differs(one: Found, other: Found, margin: float) -> bool:
    if (one.match, one.missing, [each.metric for each in one.broken]) != (
        other.match,
        other.missing,
        [each.metric for each in other.broken],
    ):
        return True
    return abs(one.score - other.score) >= margin


def _better(before: Answer, after: Answer, used: str | None, margin: float) -> Found | None:
    if not after.results:
        return None
    best = after.results[0]
    name = used if used is not None else before.results[0].name if before.results else None
    held = next((each for each in after.results if each.name == name), None)
    if best.name == name or (held is not None and best.score < held.score + margin):
        return None
    return best
