"""What the five services should find, computed by pandas from the same positions.

Thresholds are read from the service file. What else a service does stands here a second time, as plainly as possible.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from tidegate.services.definitions import Definitions
from tidegate.services.operators.aggregate import Aggregate
from tidegate.services.operators.filter import FilterOperator
from tidegate.services.operators.join import Join
from tidegate.services.operators.pattern import PatternOperator
from tidegate.services.operators.sort import Sort
from tidegate.services.operators.windows import CountWindow, SessionWindow, TimeWindow

EARTH_M = 6_371_008.8


@dataclass(frozen=True)
class Thresholds:
    """The numbers of the service file."""

    least: dict[str, float]
    most: dict[str, float]
    reports: int
    deviations: float
    within_s: float
    near_m: float
    gap_s: float
    standing_mph: float
    standing_s: float
    length_s: float
    routes: int


def thresholds(definitions: Definitions) -> Thresholds:
    """Read the thresholds of the five services; their pipelines must have the operators of `fleet.yaml`."""
    pipelines = {name: service.pipeline for name, service in definitions.services.items()}
    clean = cast("FilterOperator", pipelines["cleaned"][0])
    bounds = re.findall(rf"(\w+) BETWEEN {_NUMBER} AND {_NUMBER}", clean.text)
    anomalies = cast("Aggregate", pipelines["speed-anomalies"][0])
    join, _, _, near, bunch = pipelines["bunching"]
    step = cast("PatternOperator", pipelines["stopped"][0]).steps[0]
    return Thresholds(
        least={name: float(low) for name, low, _ in bounds},
        most={name: float(high) for name, _, high in bounds},
        reports=cast("CountWindow", anomalies.window).length,
        deviations=_number(rf"> {_NUMBER} \* deviation", anomalies.having or ""),
        within_s=cast("Join", join).within_s or 0,
        near_m=_number(rf"gap < {_NUMBER}", cast("FilterOperator", near).text),
        gap_s=cast("SessionWindow", cast("Aggregate", bunch).window).gap_s,
        standing_mph=_number(rf"speed < {_NUMBER}", step.where or ""),
        standing_s=step.for_s or 0,
        length_s=cast("TimeWindow", cast("Aggregate", pipelines["slowest-routes"][0]).window).length_s,
        routes=cast("Sort", pipelines["slowest-routes"][1]).limit or 0,
    )


_NUMBER = r"(-?\d+(?:\.\d+)?)"


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"no {pattern!r} in {text!r}")
    return float(found[1])


def results(clean: pd.DataFrame, limits: Thresholds) -> dict[str, pd.DataFrame]:
    """Compute what each service should find in the clean positions, which are in the order of the stream."""
    return {
        "speed-anomalies": speed_anomalies(clean, limits),
        "bunching": bunching(clean, limits),
        "stopped": stopped(clean, limits),
        "slowest-routes": slowest_routes(clean, limits),
    }


def cleaned(positions: pd.DataFrame, limits: Thresholds, key: bytes) -> pd.DataFrame:
    """Keep the positions that can be, and hash the vehicle's number."""
    fits = np.logical_and.reduce(
        [positions[name].between(limits.least[name], limits.most[name]) for name in limits.least]
    )
    kept = positions[fits].reset_index(drop=True)
    hashed = {each: hmac.new(key, each.encode(), hashlib.sha256).hexdigest() for each in kept["vehicle"].unique()}
    return kept.assign(vehicle=kept["vehicle"].map(hashed))


def speed_anomalies(clean: pd.DataFrame, limits: Thresholds) -> pd.DataFrame:
    """Compare the newest speed of a route with its last reports."""
    rolling = clean.groupby("route")["speed"].rolling(limits.reports)
    found = clean.assign(mean=rolling.mean().droplevel(0), deviation=rolling.apply(_deviation, raw=True).droplevel(0))
    far = (found["speed"] - found["mean"]).abs() > limits.deviations * found["deviation"]
    return found[far][["route", "vehicle", "time", "speed", "mean"]]


def _deviation(speeds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The deviation of a sample. (The rolling one of pandas adds up rounding errors.)"""
    return float(np.std(speeds, ddof=1))


def bunching(clean: pd.DataFrame, limits: Thresholds) -> pd.DataFrame:
    """Pair the reports of a route, and join the pairs of two vehicles that follow one another to encounters."""
    columns = ["route", "vehicle", "cleaned_vehicle", "begin", "end", "reports", "closest"]
    rows = []
    for route, own in clean.groupby("route"):
        pairs = _near_pairs(own, limits)
        for vehicles, met in pairs.groupby(["vehicle", "cleaned_vehicle"]):
            ordered = met.sort_values("time")
            encounter = (ordered["time"].diff() > pd.Timedelta(seconds=limits.gap_s)).cumsum()
            for _, together in ordered.groupby(encounter):
                times, closest = together["time"], together["gap"].min()
                rows.append((route, *vehicles, times.min(), times.max(), len(together), closest))
    return pd.DataFrame(rows, columns=columns)


def _near_pairs(own: pd.DataFrame, limits: Thresholds) -> pd.DataFrame:
    """Pairs of reports of two vehicles that are near in time and space."""
    at = own["time"].map(pd.Timestamp.timestamp).to_numpy()
    order = np.argsort(at, kind="stable")
    own, at = own.iloc[order], at[order]
    begins, ends = np.searchsorted(at, at - limits.within_s, "left"), np.searchsorted(at, at + limits.within_s, "right")
    left = np.repeat(np.arange(len(at)), ends - begins)
    right = np.concatenate([np.arange(a, b) for a, b in zip(begins, ends, strict=True)])
    one, other = own.iloc[left].reset_index(drop=True), own.iloc[right].reset_index(drop=True)
    gap = _distance(one, other)
    pairs = one.assign(cleaned_vehicle=other["vehicle"], gap=gap)
    return pairs[(pairs["vehicle"] < pairs["cleaned_vehicle"]) & (pairs["gap"] < limits.near_m)]


def _distance(one: pd.DataFrame, other: pd.DataFrame) -> pd.Series[float]:
    """Metres on a sphere, by the haversine formula."""
    lon, lat, lon2, lat2 = (np.radians(frame[name]) for frame in (one, other) for name in ("lon", "lat"))
    half = np.sin((lat2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat2) * np.sin((lon2 - lon) / 2) ** 2
    return 2 * EARTH_M * np.arcsin(np.sqrt(half))


def stopped(clean: pd.DataFrame, limits: Thresholds) -> pd.DataFrame:
    """Follow each vehicle from report to report; a silent one still stands."""
    rows = [row for vehicle, own in clean.groupby("vehicle") for row in _stops(str(vehicle), own, limits)]
    return pd.DataFrame(rows, columns=["vehicle", "route", "since", "time"])


def _stops(vehicle: str, own: pd.DataFrame, limits: Thresholds) -> Iterator[tuple[object, ...]]:
    lasting = pd.Timedelta(seconds=limits.standing_s)
    stands, is_told = None, False
    for report in own.sort_values("time", kind="stable").itertuples():
        if stands is not None and not is_told and report.time >= stands.time + lasting:
            is_told = True
            yield vehicle, stands.route, stands.time, stands.time + lasting
        if report.speed >= limits.standing_mph:
            stands, is_told = None, False
        elif stands is None:
            stands = report
    if stands is not None and not is_told:
        yield vehicle, stands.route, stands.time, stands.time + lasting


def slowest_routes(clean: pd.DataFrame, limits: Thresholds) -> pd.DataFrame:
    """The routes with the lowest mean speeds of each window."""
    start = clean["time"].dt.floor(pd.Timedelta(seconds=limits.length_s))
    means = clean.groupby([start, "route"])["speed"].agg(mean="mean", reports="size").reset_index()
    means = means.sort_values(["time", "mean", "route"]).groupby("time").head(limits.routes)
    return means.assign(window_start=means["time"])[["window_start", "route", "mean", "reports"]]
