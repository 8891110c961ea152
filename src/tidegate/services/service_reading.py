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
    found = spot.entries(_SERVICE_KEYS, "a service, such as {from: gps, pipeline: [merge]}")
    inputs = found.get("from", spot.at("from", None))
    names = inputs.texts("the name of a stream or service, or a list of names")
    if not names and inputs.value == []:
        inputs.refuse("at least one stream or service")
    qos, retention = _qos(found["qos"]) if "qos" in found else (Qos(), Retention())
    terms = found["terms"].pairs("terms by attribute") if "terms" in found else {}
    masks = found["mask"].pairs("masks by attribute, such as {vid: hmac}") if "mask" in found else {}
    shape = "a shape, such as 'TRAPEZOID(0, 0, 20, 35)'"
    return Service(
        name,
        names,
        read_pipeline(found["pipeline"]) if "pipeline" in found else (),
        _frozen(read_texts(found.get("constraints"), "the rest of a filter, such as '> 0'")),
        cast("OnViolation", found["on_violation"].choice(_ON_VIOLATION)) if "on_violation" in found else "quarantine",
        _frozen({attribute: _mask(each) for attribute, each in masks.items()}),
        qos,
        retention,
        _frozen({attribute: _frozen(read_texts(each, shape)) for attribute, each in terms.items()}),
        read_themes(found),
        read_description(found),
        _access(found["access"]) if "access" in found else Access(),
        _frozen(_properties(found["properties"]) if "properties" in found else {}),
        found["categories"].texts("a category, or a list of categories") if "categories" in found else (),
        on_late=cast("OnLate", found["on_late"].choice(_ON_LATE)) if "on_late" in found else "quarantine",
        idle_s=_read_limit(found["idle"]) if "idle" in found else Service.idle_s,
        max_ahead_s=_read_limit(found["max_ahead"]) if "max_ahead" in found else Service.max_ahead_s,
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
    found = spot.entries(("to", "owners", "fields"), "who sees it, such as {to: [police], fields: {vid: [police]}}")
    if "owners" in found:
        if "to" in found:
            found["owners"].blame("expected `to` or `owners`, which is another word for it, not both")
        found["to"] = found["owners"]
    fields = found["fields"].pairs("callers by attribute, such as {vid: [police]}") if "fields" in found else {}
    return Access(
        read_audience(found["to"]) if "to" in found else "keys",
        _frozen({attribute: each.texts(CALLERS) for attribute, each in fields.items()}),
    )


def _properties(spot: Spot) -> dict[str, Property]:
    pairs = spot.pairs("properties by name, such as {price: 3.5, region: north}")
    for name, each in pairs.items():
        if name.startswith("_") or not name:
            each.blame(f"expected a name that does not begin with _, not {name!r}")
        exact = isinstance(each.value, int) and -(2**63) <= each.value < 2**63
        if not exact and not isinstance(each.value, str) and not _is_finite(each.value):
            each.refuse("a number, a text, true or false")
    return {name: each.value for name, each in pairs.items()}


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _qos(spot: Spot) -> tuple[Qos, Retention]:
    known = (*_PROMISES, "retention", "retention_size")
    found = spot.entries(known, "promises, such as {latency_p99: 50ms, retention: 24h}")
    qos = Qos(
        **{metric.field: read_figure(found[key], metric) for key, metric in _PROMISES.items() if key in found},
    )
    return qos, Retention(
        read_age(found["retention"]) if "retention" in found else Retention().age_s,
        found["retention_size"].size() if "retention_size" in found else None,
    )


def _mask(spot: Spot) -> Mask:
    if isinstance(spot.value, Mapping):
        found = spot.entries(("truncate", "round"), "one mask, such as {truncate: 3}")
        if "truncate" in found and len(found) == 1:
            return Mask("truncate", found["truncate"].whole("the letters that are left, 0 or more", 0))
        if "round" in found and len(found) == 1:
            return Mask("round", found["round"].whole("decimal places from -15 to 15", -15, 15))
        if len(found) != 1:
            spot.refuse("one mask, such as {truncate: 3} or {round: 2}")
        return Mask("drop")
    return Mask(cast("Any", spot.choice(_MASKS)))


def _frozen(given: dict[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(given) if given else NONE
