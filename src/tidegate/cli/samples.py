"""What a running Tidegate says of itself, at a moment, read from its API and its metrics."""

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
"""How many took at most so many seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One service at one moment."""

    service: str
    version: int | None
    state: str
    mode: str
    in_per_s: float
    out_per_s: float
    engine_p50_ms: float | None
    """From a raw stream to the service's output."""
    engine_p99_ms: float | None
    dispatch_p50_ms: float | None
    """From the output to sockets, by passes since the last sample; the first: since the gateway began."""
    dispatch_p99_ms: float | None
    lag_bytes: int
    """What the service has yet to read."""
    subscribers: Mapping[str, int]
    """By kind: sse, websocket, webhook."""
    behind: int
    """Subscribers that catch up."""
    quarantined: int
    restarts: int
    error: str | None
    origin: str | None
    """The broker that looks after it; None: this one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All services at one moment, and what the next sample is compared with."""

    rows: tuple[Row, ...]
    dispatched: Mapping[str, Buckets] = field(default_factory=dict)


class Watcher:
    """Asks one gateway."""

    def __init__(
        self, url: str, key: str | None, timeout_s: float = 10.0, verify: ssl.SSLContext | bool = True
    ) -> None:
        self.url = endpoint.checked_url(url)
        self._http = httpx.Client(
            base_url=self.url, headers=endpoint.auth_headers(key), timeout=timeout_s, verify=verify
        )

    def close(self) -> None:
        """Close its connection."""
        self._http.close()

    def sample(self, before: Sample | None = None) -> Sample:
        """How everything is now; a `ClientError` where the gateway can't be asked."""
        try:
            services = responses.json_document(self._http.get("/v1/services"))["services"]
            answer = self._http.get("/metrics")
        except httpx.TransportError as error:
            raise responses.transport_error(self.url, error) from error
        if not answer.is_success:
            raise responses.problem_error(answer)
        return sampled(services, answer.text, before)


def sampled(services: Iterable[Mapping[str, Any]], metrics: str, before: Sample | None = None) -> Sample:
    """A sample of what `/v1/services` and `/metrics` said."""
    buckets: dict[str, dict[float, float]] = {}
    kinds: dict[str, dict[str, int]] = {}
    behind: dict[str, int] = {}
    for name, labels, value in read_metrics(metrics):
        service = labels.get("service", "")
        if name == "tidegate_dispatch_seconds_bucket":
            buckets.setdefault(service, {})[float(labels["le"])] = value
        elif name == "tidegate_subscribers_by_kind":
            kinds.setdefault(service, {})[labels["kind"]] = int(value)
        elif name == "tidegate_subscribers" and labels["state"] == "behind":
            behind[service] = int(value)
    rows = []
    for each in services:
        name = each["name"]
        old = {} if before is None else before.dispatched.get(name, {})
        passes = {most: count - old.get(most, 0.0) for most, count in buckets.get(name, {}).items()}
        rows.append(_row(each, passes, kinds.get(name, {}), behind.get(name, 0)))
    return Sample(tuple(rows), buckets)


def _row(service: Mapping[str, Any], passes: Buckets, kinds: Mapping[str, int], behind: int) -> Row:
    said: Mapping[str, Any] = service.get("status") or {}
    origin = service.get("origin")
    return Row(
        service=service["name"],
        version=service.get("version"),
        state=said.get("state", "never ran" if origin is None else f"of {origin}"),
        mode=said.get("mode", ""),
        in_per_s=said.get("read_per_s", 0.0),
        out_per_s=said.get("written_per_s", 0.0),
        engine_p50_ms=said.get("latency_p50_ms"),
        engine_p99_ms=said.get("latency_p99_ms"),
        dispatch_p50_ms=quantile_ms(passes, 0.5),
        dispatch_p99_ms=quantile_ms(passes, 0.99),
        lag_bytes=said.get("behind_bytes") or 0,
        subscribers=kinds,
        behind=behind,
        quarantined=said.get("quarantined") or 0,
        restarts=said.get("restarts") or 0,
        error=said.get("error"),
        origin=origin,
    )


def read_metrics(text: str) -> Iterable[tuple[str, dict[str, str], float]]:
    r"""The samples with labels of a page for Prometheus.

    >>> list(read_metrics('# HELP a x\na{service="b",le="+Inf"} 3.0\n'))
    [('a', {'service': 'b', 'le': '+Inf'}, 3.0)]
    """
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is not None:
            yield found[1], dict(_LABEL.findall(found[2])), float(found[3])


def quantile_ms(passes: Buckets, q: float) -> float | None:
    """A quantile of a histogram, as if a bucket's values were spread evenly; None: nothing was counted.

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
