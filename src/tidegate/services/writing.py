"""Writes definitions in the form of a service file, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.model.units import duration_text, size_text
from tidegate.services.definitions import (
    Access,
    Definitions,
    Mask,
    Retention,
    Service,
    Stream,
    StreamAccess,
)
from tidegate.services.operators.registry import operator_document
from tidegate.services.operators.settings import without_empty
from tidegate.services.sources.registry import source_document

__all__ = ["operator_document", "to_dict"]

Document = dict[str, Any]


def to_dict(definitions: Definitions | Stream | Service) -> Document:
    """Write definitions as `from_dict` reads them; a stream or service alone as its name would hold it."""
    match definitions:
        case Definitions():
            return without_empty(
                streams={name: to_dict(stream) for name, stream in definitions.streams.items()},
                services={name: to_dict(service) for name, service in definitions.services.items()},
            )
        case Stream():
            return _stream(definitions)
        case Service():
            return _service(definitions)


def _stream(stream: Stream) -> Document:
    schema = stream.schema
    return {
        "schema": schema.to_dict(),
        **without_empty(
            event_time=schema.event_time,
            key=stream.key,
            partitions=stream.partitions if stream.partitions != 1 else None,
            constraints=dict(schema.constraints),
            terms=_terms(schema.terms),
            source=source_document(stream.source),
            retention=_retention(stream.retention),
            themes=list(stream.themes),
            description=stream.description,
            access=_stream_access(stream.access),
        ),
    }


def _stream_access(access: StreamAccess) -> Any:
    to = access.to if isinstance(access.to, str) else list(access.to)
    if access.publish is None:
        return None if to == "keys" else to
    return {**({"to": to} if to != "keys" else {}), "publish": list(access.publish)}


def _terms(terms: Mapping[str, Mapping[str, str]]) -> Document:
    return {name: dict(term) for name, term in terms.items()}


def _retention(retention: Retention) -> Any:
    if retention == Retention():
        return None
    age = _age(retention.age_s)
    return age if retention.size_bytes is None else {"age": age, "size": size_text(retention.size_bytes)}


def _age(age_s: float | None) -> str:
    return "forever" if age_s is None else duration_text(age_s)


def _service(service: Service) -> Document:
    qos = service.qos
    retention = service.retention
    return {
        "from": service.main[0] if len(service.main) == 1 else list(service.main),
        **without_empty(
            pipeline=[operator_document(operator) for operator in service.pipeline],
            constraints=dict(service.constraints),
            on_violation=service.on_violation if service.on_violation != "quarantine" else None,
            on_late=service.on_late if service.on_late != "quarantine" else None,
            idle=_limit(service.idle_s, Service.idle_s),
            max_ahead=_limit(service.max_ahead_s, Service.max_ahead_s),
            mask={name: _mask(mask_) for name, mask_ in service.mask.items()},
            qos=without_empty(
                latency_p99=_duration(qos.latency_p99_s),
                availability=qos.availability,
                rate=qos.rate,
                freshness=_duration(qos.freshness_s),
                completeness=qos.completeness,
                retention=_age(retention.age_s) if retention.age_s != Retention().age_s else None,
                retention_size=None if retention.size_bytes is None else size_text(retention.size_bytes),
            ),
            terms=_terms(service.terms),
            themes=list(service.themes),
            description=service.description,
            access=_access(service.access),
            properties=dict(service.properties),
            categories=list(service.categories),
        ),
    }


def _access(access: Access) -> Any:
    to = access.to if isinstance(access.to, str) else list(access.to)
    if not access.fields:
        return None if to == "keys" else to
    document = {"to": to} if to != "keys" else {}
    return {**document, "fields": {name: list(callers) for name, callers in access.fields.items()}}


def _limit(length_s: float | None, default_s: float | None) -> str | None:
    """Return a duration or `never`; None if it is the default."""
    if length_s == default_s:
        return None
    return "never" if length_s is None else duration_text(length_s)


def _duration(length_s: float | None) -> str | None:
    return None if length_s is None else duration_text(length_s)


def _mask(mask: Mask) -> Any:
    return {mask.how: mask.digits} if mask.how in ("truncate", "round") else mask.how
