"""Evaluates one request against a directory.

    attributes ─▶ services that have them ─┐
    categories, themes ────────────────────┤                            ┌▶ coverage, degree, quality
    filter ─▶ properties, degree ──────────┼─▶ rest ─▶ weigh and rank ──┼▶ reasons, missing and broken parts
    limits ─▶ measured values ─────────────┘                            └▶ hints if nothing is left

Each step is one pass over arrays of the remaining services. Only results are built service by service.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tidegate.discovery import fits
from tidegate.discovery.answer import Answer, DiscoveryResult, Figure
from tidegate.discovery.hints import hints_for
from tidegate.discovery.index import AttributeMatch, top
from tidegate.discovery.names import NameMatcher, cached
from tidegate.discovery.quality import Certified, certify, figure_text, selection
from tidegate.discovery.request import PARTS, Request
from tidegate.discovery.service_table import Offer, ServiceTable
from tidegate.filters import Filter
from tidegate.services.quality import METRICS

_MAX_TIES = 1_000
"""Number of services beyond the limit whose ties are ordered by name; others are ordered by slot."""
_MAX_NEAR = 3
"""Number of near misses that are shown if no service fits."""


class DiscoveryQuery:
    """One evaluation of one request: the services left so far, and their scores.

    Used once, under the lock of the directory.
    """

    def __init__(
        self, table: ServiceTable, request: Request, alike: NameMatcher, now: float, lost_after_s: float
    ) -> None:
        self.table, self.request, self.alike, self.now = table, request, cached(alike), now
        self.lost_after_s = lost_after_s
        self.slots: Any = table.slots()
        self.left: dict[str, int] = {"services": len(self.slots)}
        self.coverage: Any = None
        self.likeness: Any = None
        self.degree: Any = None
        self.qos: Any = None
        self.parts: dict[str, Any] = {}
        self.near: Any = np.zeros(0, np.int64)

    def answer(self, version: int) -> Answer:
        """Filter the services step by step, rank the rest, and return the answer."""
        request = self.request
        self._keep("present", ~self.table.is_lost(self.slots, self.now, self.lost_after_s))
        if request.attributes:
            self._by_attributes()
        for kind, words in (("categories", request.categories), ("themes", request.themes)):
            if words:
                self._keep(kind, np.isin(self.slots, self._tagged(kind, words)))
        if request.limits or request.qos_weights:
            self.table.refresh(self.slots, self.now)
        for name, bound in request.limits.items():
            values = self.table.figures.of(self.slots, name)
            self._keep(f"limits.{name}", values >= bound if METRICS[name].more_is_better else values <= bound)
        if request.filter is not None:
            self._by_filter(request.filter)
        if request.qos_weights:
            figures = {name: self.table.figures.of(self.slots, name) for name in request.qos_weights}
            self.qos, self.parts = selection(figures, request.qos_weights)
        score = self._score()
        results = [self._result(n, float(score[n]), rank) for rank, n in enumerate(self._ranked(score), 1)]
        near = () if results or request.filter is None else tuple(self._nearest(request.filter))
        hints = tuple(hints_for(self.table, request, self.alike, self.left, self.now))
        return Answer(_with_ties(results), len(self.slots), hints, near, MappingProxyType(self.left), version)

    def _keep(self, step: str, mask: Any) -> None:
        self.slots = self.slots[mask]
        for name in ("coverage", "likeness", "degree"):
            values = getattr(self, name)
            if values is not None:
                setattr(self, name, values[mask])
        self.left[step] = len(self.slots)

    def _by_attributes(self) -> None:
        request = self.request
        covering = self.table.index.covering(request.attributes, least=request.coverage, alike=self.alike)
        both = np.intersect1d(self.slots, covering.slots, assume_unique=True, return_indices=True)
        self.slots, at = both[0], both[2]
        self.coverage, self.likeness = covering.coverage[at], covering.likeness[at]
        self.left["attributes"] = len(self.slots)

    def _tagged(self, kind: str, words: Sequence[str]) -> Any:
        slots = set[int]().union(*(self.table.tags[kind].get(word, set()) for word in words))
        return np.fromiter(slots, np.int64, len(slots))

    def _by_filter(self, filter_: Filter) -> None:
        matches, self.degree = self.table.properties.ask(filter_, self.slots)
        if not matches.any():
            order = top(self.degree, _MAX_NEAR)
            self.near = self.slots[order[self.degree[order] > 0]]
        self._keep("filter", matches)

    # Ranking ---------------------------------------------------------------------

    def _score(self) -> Any:
        """Return the weighted mean of the requested components; 1 if there are none."""
        values = {"coverage": self.coverage, "degree": self.degree, "qos": self.qos}
        used = {part: self.request.weights[part] for part in PARTS if values[part] is not None}
        total = sum(used.values())
        if not total:
            return np.ones(len(self.slots))
        return sum(weight / total * values[part] for part, weight in used.items())

    def _ranked(self, score: Any) -> list[int]:
        """Return the best by score; equal scores by coverage, degree, quality and similarity, then by name.

        Of equal services, one whose requested qualities are known comes first.
        """
        keys = [self._rounded(key) for key in (self.likeness, self.qos, self.degree, self.coverage, score)]
        some = top(keys[-1], self.request.limit + _MAX_TIES).tolist()
        some.sort(
            key=lambda n: (
                *(-key[n] for key in reversed(keys) if key is not None),
                self._unknown_qualities(n),
                self._offer(n).name,
            )
        )
        ranked: list[int] = some[: self.request.limit]
        return ranked

    def _unknown_qualities(self, n: int) -> int:
        slot = self.slots[n : n + 1]
        return sum(bool(np.isnan(self.table.figures.of(slot, name)[0])) for name in self.request.qos_weights)

    @staticmethod
    def _rounded(values: Any) -> Any:
        return None if values is None else np.round(values, 9)

    def _offer(self, n: int) -> Offer:
        return self.table.offers[int(self.slots[n])]

    # Results ---------------------------------------------------------------------

    def _result(self, n: int, score: float, rank: int) -> DiscoveryResult:
        request = self.request
        slot = int(self.slots[n])
        offer = self.table.offers[slot]
        matches = self.table.index.given(slot, request.attributes, self.alike) if request.attributes else ()
        degree = None if self.degree is None else float(self.degree[n])
        promises = certify(offer.qos, self.table.measured(slot, self.now))
        qos = None if self.qos is None else float(self.qos[n])
        coverage = None if self.coverage is None else float(self.coverage[n])
        figures = self._figures(n, slot)
        match = "full" if degree is None else fits.match_of(True, degree)
        explain = request.explain
        return DiscoveryResult(
            offer.name,
            rank,
            score,
            coverage,
            None if self.likeness is None else float(self.likeness[n]),
            degree,
            match,
            qos,
            tuple(attribute.wanted for attribute in matches if attribute.offered is None),
            promises,
            tuple(_why(matches, degree, match, qos, figures, promises)),
            matches if explain else (),
            fits.reasons(request.filter, offer.properties) if explain and request.filter is not None else (),
            MappingProxyType(figures) if explain else None,
        )

    def _figures(self, n: int, slot: int) -> dict[str, Figure]:
        figures, by_metric = self.table.figures, {}
        for name in dict.fromkeys((*self.request.qos_weights, *self.request.limits)):
            value = float(figures.of(np.array([slot]), name)[0])
            adds = float(self.parts[name][n]) if name in self.parts else 0.0
            number = None if np.isnan(value) else value
            weight = self.request.qos_weights.get(name, 0.0)
            by_metric[name] = Figure(number, figures.is_measured(slot, name), weight, adds)
        return by_metric

    def _nearest(self, filter_: Filter) -> Iterator[DiscoveryResult]:
        """Yield services that do not match the filter but have a degree above 0."""
        for slot in self.near.tolist():
            offer = self.table.offers[slot]
            reasons = fits.reasons(filter_, offer.properties)
            short = tuple(_short(reason) for reason in reasons if not reason.holds)
            degree = filter_.degree(offer.properties)
            yield DiscoveryResult(offer.name, 0, 0.0, None, None, degree, "none", None, (), (), short, (), reasons)


def _why(
    matches: Sequence[AttributeMatch],
    degree: float | None,
    match: str,
    qos: float | None,
    figures: Mapping[str, Figure],
    promises: Sequence[Certified],
) -> Iterable[str]:
    """Yield the reasons for a rank as sentences."""
    if matches:
        has = [attribute for attribute in matches if attribute.offered is not None]
        missing = ", ".join(attribute.wanted for attribute in matches if attribute.offered is None)
        yield f"has {len(has)} of {len(matches)} attributes{f', not {missing}' if missing else ''}"
        for attribute in has:
            if attribute.offered != attribute.wanted:
                yield f"takes {attribute.offered} for {attribute.wanted}, likeness {attribute.likeness:.2f}"
    if degree is not None:
        yield f"fits the filter by {degree:.2f}: {match}"
    if qos is not None:
        best = [
            f"{name} {figure_text(METRICS[name], figure.value)} ({'measured' if figure.measured else 'promised'})"
            if figure.value is not None
            else f"{name} unknown"
            for name, figure in figures.items()
            if figure.weight
        ]
        yield f"quality {qos:.2f} of {', '.join(best)}"
    for promise in promises:
        if promise.verdict == "broken":
            yield str(promise)


def _short(reason: fits.Reason) -> str:
    values = ", ".join(f"{name} is {value!r}" for name, value in reason.values.items())
    fit = "unknown" if reason.degree is None else f"{reason.degree:.2f}, and must reach {reason.least:.2f}"
    return f"{reason.predicate}: {fit}; {values}"


def _with_ties(results: Sequence[DiscoveryResult]) -> tuple[DiscoveryResult, ...]:
    """Add to each service that is as good as the one before it the reason why it comes after."""
    ranked: list[DiscoveryResult] = []
    for result in results:
        before = ranked[-1] if ranked else None
        if before is not None and abs(before.score - result.score) < 1e-9:
            result = replace(result, why=(*result.why, f"as good as {before.name}: {_behind(before, result)}"))
        ranked.append(result)
    return tuple(ranked)


def _behind(before: DiscoveryResult, after: DiscoveryResult) -> str:
    for name in ("coverage", "degree", "qos", "likeness"):
        one, other = getattr(before, name), getattr(after, name)
        if one is not None and one - other > 1e-9:
            return f"that has more {'quality' if name == 'qos' else name}"
    return "by name" if before.name <= after.name else "that has a known quality"
