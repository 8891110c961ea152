"""Offers: the description of a service that a broker sends to its neighbours, enough to find it and write filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import orjson

from tidegate.errors import FederationError, TidegateError
from tidegate.federation.link.bounds import Bounds, measure
from tidegate.filters import Filter
from tidegate.filters.tokens import MAX_BYTES
from tidegate.model import Schema, ServiceName
from tidegate.registry import need_broker_name
from tidegate.services import Service, from_dict, to_dict
from tidegate.services.definitions import Access

OFFERED_KEYS = ("qos", "properties", "categories", "themes", "description", "retention")
"""The keys of a definition that an offer includes. Inputs and operators are never offered."""
MAX_DEPTH = 1_000
"""Levels of nesting that are measured in our own offers; none is deeper."""
_HEAD_BYTES = 64
"""Bytes of an `offers` message besides the offers."""


@dataclass(frozen=True)
class Remote:
    """A service of another broker."""

    service: Service
    """The definition, with the name that other brokers use: `name@origin`."""
    schema: Schema
    """The attributes that this broker may see."""
    via: str
    """The neighbour that offers it."""
    onward: bool
    """True if this broker may offer it to other neighbours."""
    document: Mapping[str, Any] = field(repr=False)
    """The offer, unchanged: it is passed on exactly as it was received."""

    @property
    def origin(self) -> str:
        """The broker that runs the service."""
        return ServiceName.parse(self.service.name).origin or ""


def offered(service: Service, schema: Schema, me: str) -> dict[str, Any]:
    """Return the offer of a service of this broker. `schema` has the attributes that the neighbour may see.

    A service that only some callers may use is not offered onward, as other brokers don't know these callers.
    """
    definition = {key: value for key, value in to_dict(service).items() if key in OFFERED_KEYS}
    access = service.access
    is_for_all = access.to in ("public", "keys") and not access.fields
    return {
        "name": str(ServiceName(service.name, me)),
        "definition": definition,
        "schema": schema.to_dict(),
        "constraints": dict(schema.constraints),
        "terms": {name: dict(terms) for name, terms in schema.terms.items()},
        "event_time": schema.event_time,
        "public": access.to == "public",
        "onward": is_for_all,
    }


def read_offer(document: Mapping[str, Any], via: str) -> Remote:
    """Read an offer of the neighbour `via`. Raises a `FederationError` if it is malformed."""
    try:
        name = str(document["name"])
        parsed = ServiceName.parse(name)
        own = parsed.name
        need_broker_name(parsed.origin or "")
        definition = {key: value for key, value in document["definition"].items() if key in OFFERED_KEYS}
        (parsed_service,) = from_dict({"services": {own: {"from": own, **definition}}}, remote=True).services.values()
        access = Access("public" if document["public"] else "keys")
        schema = Schema(
            document["schema"],
            constraints=document["constraints"],
            terms=document["terms"],
            event_time=document["event_time"],
        )
        service = replace(parsed_service, name=name, main=(), access=access)
        return Remote(service, schema, via, bool(document["onward"]), document)
    except (KeyError, TypeError, ValueError, AttributeError, TidegateError) as exc:
        raise FederationError(f"expected a service of {via!r}, not {document!r:.120}: {exc}") from exc


def within_bounds(
    own: Sequence[dict[str, Any]], others: Sequence[Sequence[dict[str, Any]]], bounds: Bounds
) -> list[dict[str, Any]]:
    """Return the offers that fit into a neighbour's limits: our own first, then an equal share of each other link's.

    `others` has the offers of each other link. Without the limits, a neighbour with many offers could make the next one
    disconnect us.
    """
    limits = [bounds.services, bounds.offer_bytes - _HEAD_BYTES, bounds.offer_values]
    selected: list[dict[str, Any]] = []
    by_size = sorted(others, key=len)
    for offers, shares in [(own, 1), *((offers, len(others) - n) for n, offers in enumerate(by_size))]:
        fitting, used = _first_within(offers, [limit // shares for limit in limits])
        selected += fitting
        limits = [limit - use for limit, use in zip(limits, used, strict=True)]
    return selected


def _first_within(offers: Iterable[dict[str, Any]], limits: Sequence[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the offers that fit together into the limits of count, bytes and values; and how much of each they use."""
    fitting, used = [], [0, 0, 0]
    for offer in offers:
        size = 1, len(orjson.dumps(offer)) + 1, measure(offer, MAX_DEPTH)[1]
        total = [one + other for one, other in zip(used, size, strict=True)]
        if all(one <= limit for one, limit in zip(total, limits, strict=True)):
            fitting.append(offer)
            used = total
    return fitting, used


def is_portable(filter_: Filter, max_bytes: int) -> bool:
    """True if a filter is short enough to be sent to a neighbour, with its parameters written into the text.

    If it is not, all events are requested instead, and the subscriber's own broker filters them.
    """
    size = len(filter_.text) + sum(len(value) if isinstance(value, str) else 8 for value in filter_.params)
    return size <= max_bytes and len(str(filter_).encode("utf-8", "surrogatepass")) <= MAX_BYTES


@lru_cache(maxsize=256)
def everything(schema: Schema) -> Filter:
    """Return a filter that every event matches and that covers every other filter of the schema."""
    name = '"' + schema.root.fields[0].name.replace('"', '""') + '"'
    return Filter(f"{name} IS NULL OR {name} IS NOT NULL", schema)
