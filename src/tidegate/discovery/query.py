"""One request on its way through a directory.

    attributes ─▶ who covers them ─┐
    categories, themes ────────────┤                                   ┌▶ coverage, degree, quality
    filter ─▶ properties, degree ──┼─▶ who is left ─▶ weigh and rank ──┼▶ why, what is missing or broken
    limits ─▶ figures ─────────────┘                                   └▶ hints where nothing is left

Each step is one pass over arrays of those who are left; only what is told is made service by service.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tidegate.discovery import fits
from tidegate.discovery.answer import Answer, Figure, Found
from tidegate.discovery.hints import hints_for
from tidegate.discovery.holdings import Holdings, Offer
from tidegate.discovery.index import Given, top
from tidegate.discovery.names import Alike, remembered
from tidegate.discovery.quality import Certified, certify, figure_text, selection
from tidegate.discovery.request import PARTS, Request
from tidegate.filters import Filter
from tidegate.services.quality import METRICS

_TIES = 1_000
"""So many services more than asked for are put in order by name where they are equal; beyond that by place."""
_NEAR = 3
"""How many services that come near are shown where none fits."""


class Query:
    """One request on its way through a directory: who is left, and what each has."""

    def __init__(self, held: Holdings, request: Request, alike: Alike, now: float, lost_after_s: float) -> None:
        self.held, self.request, self.alike, self.now = held, request, remembered(alike), now
        self.lost_after_s = lost_after_s
        self.places: Any = held.places()
        self.left: dict[str, int] = {"services": len(self.places)}
        self.coverage: Any = None
        self.likeness: Any = None
        self.degree: Any = None
        self.qos: Any = None
        self.parts: dict[str, Any] = {}
        self.near: Any = np.zeros(0, np.int64)

    def answer(self, version: int) -> Answer:
        """Take step by step who is left, then rank them."""
        request = self.request
        self._keep("present", ~self.held.is_lost(self.places, self.now, self.lost_after_s))
        if request.attributes:
            self._by_attributes()
        for kind, words in (("categories", request.categories), ("themes", request.themes)):
            if words:
                self._keep(kind, np.isin(self.places, self._tagged(kind, words)))
        if request.limits or request.qos_weights:
            self.held.refresh(self.places, self.now)
        for name, bound in request.limits.items():
            values = self.held.figures.of(self.places, name)
            self._keep(f"limits.{name}", values >= bound if METRICS[name].more_is_better else values <= bound)
        if request.filter is not None:
            self._by_filter(request.filter)
        if request.qos_weights:
            figures = {name: self.held.figures.of(self.places, name) for name in request.qos_weights}
            self.qos, self.parts = selection(figures, request.qos_weights)
        score = self._score()
        results = [self._found(n, float(score[n]), rank) for rank, n in enumerate(self._ranked(score), 1)]
        near = () if results or request.filter is None else tuple(self._nearest(request.filter))
        hints = tuple(hints_for(self.held, request, self.alike, self.left, self.now))
        return Answer(_with_ties(results), len(self.places), hints, near, MappingProxyType(self.left), version)

    def _keep(self, step: str, kept: Any) -> None:
        self.places = self.places[kept]
        for name in ("coverage", "likeness", "degree"):
            values = getattr(self, name)
            if values is not None:
                setattr(self, name, values[kept])
        self.left[step] = len(self.places)

    def _by_attributes(self) -> None:
        request = self.request
        found = self.held.index.covering(request.attributes, least=request.coverage, alike=self.alike)
        both = np.intersect1d(self.places, found.places, assume_unique=True, return_indices=True)
        self.places, at = both[0], both[2]
        self.coverage, self.likeness = found.coverage[at], found.likeness[at]
        self.left["attributes"] = len(self.places)

    def _tagged(self, kind: str, words: Sequence[str]) -> Any:
        places = set[int]().union(*(self.held.tags[kind].get(word, set()) for word in words))
        return np.fromiter(places, np.int64, len(places))

    def _by_filter(self, filter_: Filter) -> None:
        matches, self.degree = self.held.properties.ask(filter_, self.places)
        if not matches.any():
            order = top(self.degree, _NEAR)
            self.near = self.places[order[self.degree[order] > 0]]
        self._keep("filter", matches)

    # Ranking ---------------------------------------------------------------------

    def _score(self) -> Any:
        """The weighted mean of what was asked for; 1 where nothing was."""
        values = {"coverage": self.coverage, "degree": self.degree, "qos": self.qos}
        used = {part: self.request.weights[part] for part in PARTS if values[part] is not None}
        total = sum(used.values())
        if not total:
            return np.ones(len(self.places))
        return sum(weight / total * values[part] for part, weight in used.items())

    def _ranked(self, score: Any) -> list[int]:
        """The best, by score; of equals the one with more coverage, degree, quality and likeness; then by name."""
        keys = [self._rounded(each) for each in (self.likeness, self.qos, self.degree, self.coverage, score)]
        some = top(keys[-1], self.request.limit + _TIES).tolist()
        some.sort(key=lambda n: (*(-each[n] for each in reversed(keys) if each is not None), self._offer(n).name))
        found: list[int] = some[: self.request.limit]
        return found

    @staticmethod
    def _rounded(values: Any) -> Any:
        return None if values is None else np.round(values, 9)

    def _offer(self, n: int) -> Offer:
        return self.held.offers[int(self.places[n])]

    # What is told ----------------------------------------------------------------

    def _found(self, n: int, score: float, rank: int) -> Found:
        request = self.request
        place = int(self.places[n])
        offer = self.held.offers[place]
        given = self.held.index.given(place, request.attributes, self.alike) if request.attributes else ()
        degree = None if self.degree is None else float(self.degree[n])
        promises = certify(offer.qos, self.held.measured(place, self.now))
        qos = None if self.qos is None else float(self.qos[n])
        coverage = None if self.coverage is None else float(self.coverage[n])
        figures = self._figures(n, place)
        match = "full" if degree is None else fits.match_of(True, degree)
        explained = request.explain
        return Found(
            offer.name,
            rank,
            score,
            coverage,
            None if self.likeness is None else float(self.likeness[n]),
            degree,
            match,
            qos,
            tuple(each.wanted for each in given if each.offered is None),
            promises,
            tuple(_why(given, degree, match, qos, figures, promises)),
            given if explained else (),
            fits.reasons(request.filter, offer.properties) if explained and request.filter is not None else (),
            MappingProxyType(figures) if explained else None,
        )

    def _figures(self, n: int, place: int) -> dict[str, Figure]:
        figures, found = self.held.figures, {}
        for name in dict.fromkeys((*self.request.qos_weights, *self.request.limits)):
            value = float(figures.of(np.array([place]), name)[0])
            adds = float(self.parts[name][n]) if name in self.parts else 0.0
            known = None if np.isnan(value) else value
            weight = self.request.qos_weights.get(name, 0.0)
            found[name] = Figure(known, figures.is_measured(place, name), weight, adds)
        return found

    def _nearest(self, filter_: Filter) -> Iterator[Found]:
        """Services that do not match the filter, but fit by some degree."""
        for place in self.near.tolist():
            offer = self.held.offers[place]
            said = fits.reasons(filter_, offer.properties)
            short = tuple(_short(each) for each in said if not each.holds)
            degree = filter_.degree(offer.properties)
            yield Found(offer.name, 0, 0.0, None, None, degree, "none", None, (), (), short, (), said)


def _why(
    given: Sequence[Given],
    degree: float | None,
    match: str,
    qos: float | None,
    figures: Mapping[str, Figure],
    promises: Sequence[Certified],
) -> Iterable[str]:
    """Say in sentences what a rank comes from."""
    if given:
        has = [each for each in given if each.offered is not None]
        missing = ", ".join(each.wanted for each in given if each.offered is None)
        yield f"has {len(has)} of {len(given)} attributes{f', not {missing}' if missing else ''}"
        for each in has:
            if each.offered != each.wanted:
                yield f"takes {each.offered} for {each.wanted}, likeness {each.likeness:.2f}"
    if degree is not None:
        yield f"fits the filter by {degree:.2f}: {match}"
    if qos is not None:
        best = [
            f"{name} {figure_text(METRICS[name], each.value)} ({'measured' if each.measured else 'promised'})"
            if each.value is not None
            else f"{name} unknown"
            for name, each in figures.items()
            if each.weight
        ]
        yield f"quality {qos:.2f} of {', '.join(best)}"
    for promise in promises:
        if promise.verdict == "broken":
            yield str(promise)


def _short(reason: fits.Reason) -> str:
    values = ", ".join(f"{name} is {value!r}" for name, value in reason.values.items())
    fit = "unknown" if reason.degree is None else f"{reason.degree:.2f}, and must reach {reason.least:.2f}"
    return f"{reason.predicate}: {fit}; {values}"


def _with_ties(results: Sequence[Found]) -> tuple[Found, ...]:
    """Say of a service that is just as good as the one before it why it stands behind."""
    found: list[Found] = []
    for each in results:
        before = found[-1] if found else None
        if before is not None and abs(before.score - each.score) < 1e-9:
            each = replace(each, why=(*each.why, f"as good as {before.name}: {_behind(before, each)}"))
        found.append(each)
    return tuple(found)


def _behind(before: Found, after: Found) -> str:
    for name in ("coverage", "degree", "qos", "likeness"):
        one, other = getattr(before, name), getattr(after, name)
        if one is not None and one - other > 1e-9:
            return f"that has more {'quality' if name == 'qos' else name}"
    return "by name"
