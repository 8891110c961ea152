"""Samples of a running gateway: the state of its services, from its API and its metrics."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tidegate.client import endpoint, responses

_LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Buckets = Mapping[float, float]
"""A cumulative histogram: the count of passes that took at most this many seconds."""


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """The state of one service at the time of a sample."""

    service: str
    version: int | None
    state: str
    mode: str
    in_per_s: float
    out_per_s: float
    engine_p50_ms: float | None
    """Latency from the append of an input event to the append of the output event."""
    engine_p99_ms: float | None
    processing_p50_ms: float | None
    """The part of that latency since the input was read."""
    processing_p99_ms: float | None
    dispatch_p50_ms: float | None
    """Latency from the output to the sockets, over the passes since the sample before, or since the gateway's start."""
    dispatch_p99_ms: float | None
    lag_bytes: int
    """Bytes of input that the service has not read yet."""
    subscribers: Mapping[str, int]
    """Subscribers by kind: sse, websocket, webhook."""
    behind: int
    """The number of subscribers in catch-up."""
    quarantined: int
    late: int | None
    """Events that came after their window was closed; None: not known."""
    filtered: int | None
    """Events that a filter or another operator removed; None: not known."""
    held: int | None
    """Events in the state of the service; None: not known."""
    restarts: int
    error: str | None
    origin: str | None
    """The broker that runs the service; None for this one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of all services at one time, and the histograms that the next sample subtracts."""

    rows: tuple[ServiceSample, ...]
    dispatched: Mapping[str, Buckets] = field(default_factory=dict)


class GatewaySampler:
    """Takes samples of one gateway. Blocking; one thread uses it."""

    def __init__(
        self, url: str, key: str | None, timeout_s: float = 10.0, verify: ssl.SSLContext | bool = True
    ) -> None:
        self.url = endpoint.checked_url(url)
        self._http = httpx.Client(
            base_url=self.url, headers=endpoint.auth_headers(key), timeout=timeout_s, verify=verify
        )

    def close(self) -> None:
        """Close the HTTP connection."""
        self._http.close()

    def sample(self, before: Sample | None = None) -> Sample:
        """Take a sample; raises a `ClientError` if the gateway can't be reached or refuses.

        Dispatch latencies are of the time since `before`.
        """
        try:
            services = responses.json_document(self._http.get("/v1/services"))["services"]
            answer = self._http.get("/metrics")
        except httpx.TransportError as error:
            raise responses.transport_error(self.url, error) from error
        if not answer.is_success:
            raise responses.problem_error(answer)
        return make_sample(services, answer.text, before)


def make_sample(services: Iterable[Mapping[str, Any]], metrics: str, before: Sample | None = None) -> Sample:
    """Return the sample that the answers of `/v1/services` and `/metrics` describe."""
    buckets: dict[str, dict[float, float]] = {}
    kinds: dict[str, dict[str, int]] = {}
    behind: dict[str, int] = {}
    for name, labels, value in read_metrics(metrics):
        labelled = labels.get("service", "")
        if name == "tidegate_dispatch_seconds_bucket":
            buckets.setdefault(labelled, {})[float(labels["le"])] = value
        elif name == "tidegate_subscribers_by_kind":
            kinds.setdefault(labelled, {})[labels["kind"]] = int(value)
        elif name == "tidegate_subscribers" and labels["state"] == "behind":
            behind[labelled] = int(value)
    rows = []
    for service in services:
        name = service["name"]
        old = {} if before is None else before.dispatched.get(name, {})
        passes = {bound: count - old.get(bound, 0.0) for bound, count in buckets.get(name, {}).items()}
        rows.append(_row(service, passes, kinds.get(name, {}), behind.get(name, 0)))
    return Sample(tuple(rows), buckets)


def _row(service: Mapping[str, Any], passes: Buckets, kinds: Mapping[str, int], behind: int) -> ServiceSample:
    status: Mapping[str, Any] = service.get("status") or {}
    origin = service.get("origin")
    return ServiceSample(
        service=service["name"],
        version=service.get("version"),
        state=status.get("state", "never ran" if origin is None else f"of {origin}"),
        mode=status.get("mode", ""),
        in_per_s=status.get("read_per_s", 0.0),
        out_per_s=status.get("written_per_s", 0.0),
        engine_p50_ms=status.get("latency_p50_ms"),
        engine_p99_ms=status.get("latency_p99_ms"),
        processing_p50_ms=status.get("processing_p50_ms"),
        processing_p99_ms=status.get("processing_p99_ms"),
        dispatch_p50_ms=quantile_ms(passes, 0.5),
        dispatch_p99_ms=quantile_ms(passes, 0.99),
        lag_bytes=status.get("behind_bytes") or 0,
        subscribers=kinds,
        behind=behind,
        quarantined=status.get("quarantined") or 0,
        late=status.get("late"),
        filtered=status.get("filtered"),
        held=status.get("held"),
        restarts=status.get("restarts") or 0,
        error=status.get("error"),
        origin=origin,
    )


def read_metrics(text: str) -> Iterable[tuple[str, dict[str, str], float]]:
    r"""Parse the lines with labels of the Prometheus text format: name, labels, value.

    >>> list(read_metrics('# HELP a x\na{service="b",le="+Inf"} 3.0\n'))
    [('a', {'service': 'b', 'le': '+Inf'}, 3.0)]
    """
    for line in text.splitlines():
        parts = _LINE.fullmatch(line)
        if parts is not None:
            yield parts[1], dict(_LABEL.findall(parts[2])), float(parts[3])


def quantile_ms(passes: Buckets, q: float) -> float | None:
    """Return a quantile of a histogram, interpolated linearly inside its bucket; None if the histogram is empty.

    >>> quantile_ms({0.001: 50, 0.002: 100, float("inf"): 100}, 0.75)
    1.5
    """
    bounds = sorted(passes)
    total = passes[bounds[-1]] if bounds else 0
    if total <= 0:
        return None
    low, below = 0.0, 0.0
    for bound in bounds:
        count = passes[bound]
        if count >= q * total:
            if bound == float("inf"):
                return low * 1e3
            return (low + (bound - low) * (q * total - below) / max(count - below, 1e-9)) * 1e3
        low, below = bound, count
    return low * 1e3
