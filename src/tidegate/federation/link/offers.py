"""What brokers tell each other of their services: all that somebody needs to find one and write a filter for it."""

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

SHOWN = ("qos", "properties", "categories", "themes", "description", "retention")
"""Of a definition, what others are told: not what it is made of."""
MAX_DEPTH = 1_000
"""Of what is offered to others: none of it is deeper."""
_HEAD_BYTES = 64
"""Of a message with offers, besides these."""


@dataclass(frozen=True)
class Remote:
    """A service of another broker."""

    service: Service
    """Under the name that it has everywhere but at its origin."""
    schema: Schema
    """Of what we may see of it."""
    via: str
    """The neighbour who passes it on."""
    onward: bool
    """Whether we may pass it on."""
    document: Mapping[str, Any] = field(repr=False)
    """As we were told, and tell others."""

    @property
    def origin(self) -> str:
        """The broker that it comes from."""
        return ServiceName.parse(self.service.name).origin or ""


def offered(service: Service, schema: Schema, me: str) -> dict[str, Any]:
    """A service of our own, for a neighbour who sees it by this schema.

    What is for some callers only is not to be passed on: who they are elsewhere we can't know.
    """
    definition = {key: value for key, value in to_dict(service).items() if key in SHOWN}
    access = service.access
    is_for_all = access.to in ("public", "keys") and not access.fields
    return {
        "name": str(ServiceName(service.name, me)),
        "definition": definition,
        "schema": schema.to_dict(),
        "constraints": dict(schema.constraints),
        "terms": {name: dict(each) for name, each in schema.terms.items()},
        "event_time": schema.event_time,
        "public": access.to == "public",
        "onward": is_for_all,
    }


def read_offer(said: Mapping[str, Any], via: str) -> Remote:
    """A service of a neighbour, or one that it passes on."""
    try:
        name = str(said["name"])
        parsed = ServiceName.parse(name)
        own = parsed.name
        need_broker_name(parsed.origin or "")
        shown = {key: value for key, value in said["definition"].items() if key in SHOWN}  # never what it is made of
        (found,) = from_dict({"services": {own: {"from": own, **shown}}}, remote=True).services.values()
        access = Access("public" if said["public"] else "keys")
        schema = Schema(
            said["schema"], constraints=said["constraints"], terms=said["terms"], event_time=said["event_time"]
        )
        return Remote(replace(found, name=name, inputs=(), access=access), schema, via, bool(said["onward"]), said)
    except (KeyError, TypeError, ValueError, AttributeError, TidegateError) as exc:
        raise FederationError(f"expected a service of {via!r}, not {said!r:.120}: {exc}") from exc


def within_bounds(
    own: Sequence[dict[str, Any]], others: Sequence[Sequence[dict[str, Any]]], bounds: Bounds
) -> list[dict[str, Any]]:
    """Return as much of what a neighbour may have as it takes: our own services, then an equal share of each other.

    So no neighbour can have us disconnected by another by all that it offers.
    """
    limits = [bounds.services, bounds.offer_bytes - _HEAD_BYTES, bounds.offer_values]
    found: list[dict[str, Any]] = []
    for offers, share in [(own, 1), *((each, len(others) - n) for n, each in enumerate(sorted(others, key=len)))]:
        some, used = _first_within(offers, [limit // share for limit in limits])
        found += some
        limits = [limit - use for limit, use in zip(limits, used, strict=True)]
    return found


def _first_within(offers: Iterable[dict[str, Any]], limits: Sequence[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the offers that are within limits together: of their number, bytes and values; and what they use."""
    found, used = [], [0, 0, 0]
    for offer in offers:
        size = 1, len(orjson.dumps(offer)) + 1, measure(offer, MAX_DEPTH)[1]
        total = [one + other for one, other in zip(used, size, strict=True)]
        if all(one <= limit for one, limit in zip(total, limits, strict=True)):
            found.append(offer)
            used = total
    return found, used


def is_portable(filter_: Filter, max_bytes: int) -> bool:
    """Say whether a neighbour can read a filter: parameters are in its text there, which may be too long.

    Where it can't, it is asked for everything, and the subscriber's own broker filters.
    """
    written = len(filter_.text) + sum(len(each) if isinstance(each, str) else 8 for each in filter_.params)
    return written <= max_bytes and len(str(filter_).encode("utf-8", "surrogatepass")) <= MAX_BYTES


@lru_cache(maxsize=256)
def everything(schema: Schema) -> Filter:
    """A filter that every event matches, and that covers every other."""
    name = '"' + schema.root.fields[0].name.replace('"', '""') + '"'
    return Filter(f"{name} IS NULL OR {name} IS NOT NULL", schema)
