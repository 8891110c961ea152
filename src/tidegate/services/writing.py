"""Definitions in the form of a service file, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tidegate.model import Schema
from tidegate.model.units import duration_text, size_text
from tidegate.services.definitions import (
    Access,
    Definitions,
    Demo,
    Files,
    Http,
    Kafka,
    Mask,
    Mqtt,
    Retention,
    Service,
    Source,
    Stream,
    StreamAccess,
)
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import (
    Aggregate,
    Aggregation,
    Computed,
    CountWindow,
    Custom,
    Deduplicate,
    Enrich,
    Filter,
    Incremental,
    Join,
    Merge,
    Operator,
    Project,
    Sort,
    SortKey,
    Window,
)
from tidegate.services.pipeline import read_aggregations

Document = dict[str, Any]


def to_dict(given: Definitions | Stream | Service) -> Document:
    """Write definitions as `from_dict` reads them; a stream or service alone as its name would hold it."""
    match given:
        case Definitions():
            return _without_empty(
                streams={name: to_dict(each) for name, each in given.streams.items()},
                services={name: to_dict(each) for name, each in given.services.items()},
            )
        case Stream():
            return _stream(given)
        case Service():
            return _service(given)


def _without_empty(**entries: Any) -> Document:
    """Leave out what is None or has nothing in it."""
    return {name: value for name, value in entries.items() if value is not None and value not in ({}, [], "")}


def _stream(stream: Stream) -> Document:
    schema = stream.schema
    return {
        "schema": schema.to_dict(),
        **_without_empty(
            event_time=schema.event_time,
            key=stream.key,
            partitions=stream.partitions if stream.partitions != 1 else None,
            constraints=dict(schema.constraints),
            terms=_terms(schema.terms),
            source=_source(stream.source),
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
    return {name: dict(each) for name, each in terms.items()}


def _source(source: Source) -> Document | None:
    match source:
        case Http():
            return None
        case Demo():
            return {"demo": _short(source, "kind")}
        case Files():
            return {"files": _short(source, "path")}
        case Kafka():
            return {"kafka": _short(source, "topic")}
        case Mqtt():
            return {"mqtt": _short(source, "topic")}


def _short(source: Any, main: str) -> Any:
    """One field alone where the others have their defaults."""
    changed = {
        each.name: getattr(source, each.name)
        for each in fields(source)
        if each.name != main and getattr(source, each.name) != each.default
    }
    return {main: getattr(source, main), **changed} if changed else getattr(source, main)


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
        "from": service.inputs[0] if len(service.inputs) == 1 else list(service.inputs),
        **_without_empty(
            pipeline=[operator_document(each) for each in service.pipeline],
            constraints=dict(service.constraints),
            on_violation=service.on_violation if service.on_violation != "quarantine" else None,
            mask={name: _mask(each) for name, each in service.mask.items()},
            qos=_without_empty(
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
    said = {"to": to} if to != "keys" else {}
    return {**said, "fields": {name: list(each) for name, each in access.fields.items()}}


def _duration(length_s: float | None) -> str | None:
    return None if length_s is None else duration_text(length_s)


def _mask(mask: Mask) -> Any:
    return {mask.how: mask.digits} if mask.how in ("truncate", "round") else mask.how


def operator_document(operator: Operator) -> Any:
    """Write one operator."""
    match operator:
        case Filter(text, params):
            return {"filter": {"where": text, "params": list(params)} if params else text}
        case Project():
            return {"project": _project(operator)}
        case Sort(by, window):
            return {"sort": {"by": [_sort_key(key) for key in by], "window": _window(window)}}
        case Aggregate():
            return {"aggregate": _aggregate(operator, "final")}
        case Incremental():
            return {"incremental": _aggregate(operator, "updates" if operator.window is None else "final")}
        case Merge():
            return "merge"
        case Join():
            return {"join": {**_on(operator.on), "within": duration_text(operator.within_s), **_late(operator)}}
        case Deduplicate():
            within = duration_text(operator.within_s) if operator.within_s != Deduplicate().within_s else None
            settings = _without_empty(by=list(operator.by), within=within)
            return {"deduplicate": settings} if settings else "deduplicate"
        case Enrich():
            return {"enrich": _enrich(operator)}
        case Custom():
            return {"custom": _custom(operator)}


def _project(operator: Project) -> Document:
    select = {name: _computed(each) for name, each in operator.attributes.items()}
    if operator.keep:
        return {"select": select, "keep": True}
    return {"select": select} if "select" in select else select


def _computed(computed: Computed) -> Any:
    extras = {"default": computed.default, "type": computed.type}
    extras = {name: value for name, value in extras.items() if value is not None}
    return {"value": computed.expression, **extras} if extras else computed.expression


def _sort_key(key: SortKey) -> str:
    if key.descending:
        return f"-{key.attribute}"
    return f"+{key.attribute}" if key.attribute[:1] in ("-", "+") else key.attribute


def _window(window: Window) -> Document:
    if isinstance(window, CountWindow):
        slide = f"{window.slide} events" if window.slide != window.length else None
        return {"length": f"{window.length} events", **_without_empty(slide=slide)}
    slide = duration_text(window.slide_s) if window.slide_s != window.length_s else None
    return {"length": duration_text(window.length_s), **_without_empty(slide=slide), **_late(window)}


def _late(of: Any) -> Document:
    return {"lateness": duration_text(of.lateness_s)} if of.lateness_s else {}


def _on(on: tuple[str, ...]) -> Document:
    return _without_empty(on=on[0] if len(on) == 1 else list(on))


def _aggregate(operator: Aggregate | Incremental, emit: str) -> Document:
    return {
        **_aggregations(operator.aggregations),
        **_without_empty(
            by=list(operator.by),
            window=None if operator.window is None else _window(operator.window),
            emit=operator.emit if operator.emit != emit else None,
        ),
    }


def _aggregations(given: tuple[Aggregation, ...]) -> Document:
    """Group aggregates by function, where that says the same; else list them one by one."""
    one_by_one = [{each.function: _aggregation(each)} for each in given]
    compact: Document = {}
    for each in given:
        compact.setdefault(each.function, []).append(_aggregation(each))
    compact = {name: values[0] if len(values) == 1 else values for name, values in compact.items()}
    return compact if _read_back(compact) == given else {"of": one_by_one}


def _aggregation(each: Aggregation) -> Any:
    if each.attribute is None:
        return each.name
    if each.name is None or (each.function in ("sum", "avg") and each.name == f"{each.function}_{each.attribute}"):
        return each.attribute
    return {each.attribute: each.name}


def _read_back(document: Document) -> tuple[Aggregation, ...]:
    spot = Spot(document, (), Findings())
    return read_aggregations(spot.pairs("aggregates"), spot)


def _enrich(operator: Enrich) -> Document:
    table = operator.table
    if table.connection is not None:
        where: Document = {"table": {"connection": table.connection, "table": table.table}}
    elif table.format == "jdbc":
        where = {"jdbc": {"url": table.url, "table": table.table}}
    else:
        where = {"table": table.path, **_without_empty(format=table.format)}
    return {
        **where,
        **_on(operator.on),
        **({} if table.schema is None else {"schema": table.schema.to_dict()}),
        **({"required": True} if operator.required else {}),
    }


def _custom(operator: Custom) -> Document:
    schema: Schema = operator.schema
    return {
        "function": operator.function,
        "schema": schema.to_dict(),
        **_without_empty(
            event_time=schema.event_time,
            options=dict(operator.options),
            by=list(operator.by),
            window=None if operator.window is None else _window(operator.window),
        ),
    }
