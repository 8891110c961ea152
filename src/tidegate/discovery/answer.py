"""The answer to a request: ranked services with the reasons, and the difference of two answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tidegate.discovery.fits import Match, Reason
from tidegate.discovery.index import AttributeMatch
from tidegate.discovery.quality import Certified


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of a service as selection used it."""

    value: float | None
    """None: neither measured nor promised."""
    measured: bool
    """True if the value was measured; else it is what the service promises."""
    weight: float
    adds: float
    """Contribution to the service's quality."""


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """One service of an answer."""

    name: str
    rank: int
    score: float
    """Weighted mean of coverage, degree and quality: 0 to 1."""
    coverage: float | None
    """Share of the requested attributes that the service has; None: none were requested."""
    likeness: float | None
    """Mean similarity of the attributes' names to the requested ones."""
    degree: float | None
    """How well its properties fit the filter; None: the request has no filter."""
    match: Match
    qos: float | None
    """W_QoS; None: the request has no weights."""
    missing: tuple[str, ...]
    """Requested attributes that the service does not have."""
    promises: tuple[Certified, ...]
    """Its promises, compared with their measurements."""
    why: tuple[str, ...]
    """Reasons for the rank, as sentences."""
    given: tuple[AttributeMatch, ...] = ()
    """If the request asks to explain: the attribute offered for each requested one."""
    reasons: tuple[Reason, ...] = ()
    """If the request asks to explain: the result of each predicate."""
    figures: Mapping[str, Figure] | None = None
    """If the request asks to explain: the metrics with a weight or a limit."""

    @property
    def broken(self) -> tuple[Certified, ...]:
        """The promises that the service breaks."""
        return tuple(promise for promise in self.promises if promise.verdict == "broken")


@dataclass(frozen=True, slots=True)
class Hint:
    """A probable mistake in a request."""

    path: str
    """Part of the request: `attributes[2]`, `filter`."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The services that fit a request, best first."""

    results: tuple[DiscoveryResult, ...]
    total: int
    """Number of services that fit, including those beyond the limit."""
    hints: tuple[Hint, ...]
    near: tuple[DiscoveryResult, ...]
    """If nothing fits: the services that come nearest to the filter."""
    left: Mapping[str, int]
    """Number of services left after each step: `services`, `present`, `attributes`, ..."""
    version: int
    """Version of the directory that answered; it grows with every change."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        document: dict[str, Any] = _plain(self)
        return document


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, slots=True)
class Changed:
    """A service in both answers whose result differs."""

    before: DiscoveryResult
    after: DiscoveryResult


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between two answers to one request."""

    appeared: tuple[DiscoveryResult, ...]
    left: tuple[DiscoveryResult, ...]
    changed: tuple[Changed, ...]
    better: DiscoveryResult | None
    """The best service, if it is better than the one in use; see `changes`."""

    def __bool__(self) -> bool:
        return bool(self.appeared or self.left or self.changed)


def changes(before: Answer, after: Answer, *, used: str | None = None, margin: float = 0.01) -> Changes:
    """Return the differences between two answers to one request.

    A score that moved by less than `margin` without breaking a promise is no change, because measurements move all the
    time. `used` is the service that the consumer uses; None: the one that was best. `better` is set if the best service
    leads the used one by `margin`, or if the used one is gone.
    """
    old, new = ({result.name: result for result in answer.results} for answer in (before, after))
    changed = [
        Changed(old[result.name], result)
        for result in after.results
        if result.name in old and _differs(old[result.name], result, margin)
    ]
    return Changes(
        tuple(result for result in after.results if result.name not in old),
        tuple(result for result in before.results if result.name not in new),
        tuple(changed),
        _better(before, after, used, margin),
    )


def _differs(one: DiscoveryResult, other: DiscoveryResult, margin: float) -> bool:
    if (one.match, one.missing, [promise.metric for promise in one.broken]) != (
        other.match,
        other.missing,
        [promise.metric for promise in other.broken],
    ):
        return True
    return abs(one.score - other.score) >= margin


def _better(before: Answer, after: Answer, used: str | None, margin: float) -> DiscoveryResult | None:
    if not after.results:
        return None
    best = after.results[0]
    name = used if used is not None else before.results[0].name if before.results else None
    current = next((result for result in after.results if result.name == name), None)
    if best.name == name or (current is not None and best.score < current.score + margin):
        return None
    return best
