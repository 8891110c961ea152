"""Reads one service of a service file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from tidegate.model import units
from tidegate.services.common_settings import CALLERS, read_age, read_audience, read_description, read_themes
from tidegate.services.definitions import (
    NONE,
    Access,
    Mask,
    OnLate,
    OnViolation,
    Property,
    Qos,
    Retention,
    Service,
)
from tidegate.services.findings import Spot
from tidegate.services.operators.registry import read_pipeline
from tidegate.services.quality import METRICS, read_figure
from tidegate.services.schemas import read_texts

_ON_VIOLATION = ("quarantine", "drop", "flag", "fail")
_ON_LATE = ("quarantine", "drop", "update")
_MASKS = ("drop", "hmac", "truncate", "round")
_SERVICE_KEYS = (
    *("from", "pipeline", "constraints", "on_violation", "on_late", "idle", "max_ahead", "mask"),
    *("qos", "terms", "themes", "description", "access", "properties", "categories"),
)
_PROMISES = {"latency_p99" if name == "latency" else name: metric for name, metric in METRICS.items()}


def read_service_at(name: str, spot: Spot) -> Service:
    """Read a service."""
    settings = spot.entries(_SERVICE_KEYS, "a service, such as {from: gps, pipeline: [merge]}")
    inputs = settings.get("from", spot.at("from", None))
    names = inputs.texts("the name of a stream or service, or a list of names")
    if not names and inputs.value == []:
        inputs.refuse("at least one stream or service")
    qos, retention = _qos(settings["qos"]) if "qos" in settings else (Qos(), Retention())
    terms = settings["terms"].pairs("terms by attribute") if "terms" in settings else {}
    masks = settings["mask"].pairs("masks by attribute, such as {vid: hmac}") if "mask" in settings else {}
    shape = "a shape, such as 'TRAPEZOID(0, 0, 20, 35)'"
    return Service(
        name,
        names,
        read_pipeline(settings["pipeline"]) if "pipeline" in settings else (),
        _frozen(read_texts(settings.get("constraints"), "the rest of a filter, such as '> 0'")),
        cast("OnViolation", settings["on_violation"].choice(_ON_VIOLATION))
        if "on_violation" in settings
        else "quarantine",
        _frozen({attribute: _mask(mask) for attribute, mask in masks.items()}),
        qos,
        retention,
        _frozen({attribute: _frozen(read_texts(term, shape)) for attribute, term in terms.items()}),
        read_themes(settings),
        read_description(settings),
        _access(settings["access"]) if "access" in settings else Access(),
        _frozen(_properties(settings["properties"]) if "properties" in settings else {}),
        settings["categories"].texts("a category, or a list of categories") if "categories" in settings else (),
        on_late=cast("OnLate", settings["on_late"].choice(_ON_LATE)) if "on_late" in settings else "quarantine",
        idle_s=_read_limit(settings["idle"]) if "idle" in settings else Service.idle_s,
        max_ahead_s=_read_limit(settings["max_ahead"]) if "max_ahead" in settings else Service.max_ahead_s,
    )


def _read_limit(spot: Spot) -> float | None:
    """Read a length of time; None: `never`."""
    if spot.value == "never":
        return None
    length_s = units.seconds(spot.value) if isinstance(spot.value, str) else None
    if not length_s:
        spot.refuse("a length of time such as 50ms, 10s, 2m, 24h or 7d, or never")
    return length_s


def _access(spot: Spot) -> Access:
    if not isinstance(spot.value, Mapping):
        return Access(read_audience(spot))
    settings = spot.entries(("to", "owners", "fields"), "who sees it, such as {to: [police], fields: {vid: [police]}}")
    if "owners" in settings:
        if "to" in settings:
            settings["owners"].report("expected `to` or `owners`, which is another word for it, not both")
        settings["to"] = settings["owners"]
    fields = settings["fields"].pairs("callers by attribute, such as {vid: [police]}") if "fields" in settings else {}
    return Access(
        read_audience(settings["to"]) if "to" in settings else "keys",
        _frozen({attribute: callers.texts(CALLERS) for attribute, callers in fields.items()}),
    )


def _properties(spot: Spot) -> dict[str, Property]:
    pairs = spot.pairs("properties by name, such as {price: 3.5, region: north}")
    for name, entry in pairs.items():
        if name.startswith("_") or not name:
            entry.report(f"expected a name that does not begin with _, not {name!r}")
        exact = isinstance(entry.value, int) and -(2**63) <= entry.value < 2**63
        if not exact and not isinstance(entry.value, str) and not _is_finite(entry.value):
            entry.refuse("a number, a text, true or false")
    return {name: entry.value for name, entry in pairs.items()}


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _qos(spot: Spot) -> tuple[Qos, Retention]:
    allowed = (*_PROMISES, "retention", "retention_size")
    settings = spot.entries(allowed, "promises, such as {latency_p99: 50ms, retention: 24h}")
    qos = Qos(
        **{metric.field: read_figure(settings[key], metric) for key, metric in _PROMISES.items() if key in settings},
    )
    return qos, Retention(
        read_age(settings["retention"]) if "retention" in settings else Retention().age_s,
        settings["retention_size"].size() if "retention_size" in settings else None,
    )


def _mask(spot: Spot) -> Mask:
    if isinstance(spot.value, Mapping):
        settings = spot.entries(("truncate", "round"), "one mask, such as {truncate: 3}")
        if "truncate" in settings and len(settings) == 1:
            return Mask("truncate", settings["truncate"].whole("the letters that are left, 0 or more", 0))
        if "round" in settings and len(settings) == 1:
            return Mask("round", settings["round"].whole("decimal places from -15 to 15", -15, 15))
        if len(settings) != 1:
            spot.refuse("one mask, such as {truncate: 3} or {round: 2}")
        return Mask("drop")
    return Mask(cast("Any", spot.choice(_MASKS)))


def _frozen(given: dict[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(given) if given else NONE
