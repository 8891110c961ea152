"""Which attribute tells the things apart that a service's events are of: a vehicle's events, a camera's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.services.check import ordered
from tidegate.services.definitions import Definitions, Mask
from tidegate.services.findings import Findings
from tidegate.services.operators import Aggregate, Custom, Incremental, Join, Operator, Project


def output_keys(definitions: Definitions) -> dict[str, str]:
    """By service the key of its output, where one attribute alone is known to be it.

    That of a raw stream is its `key`; an aggregate's is what it is `by`. A name that a projection gives is followed;
    what is computed, joined otherwise than by the key, or masked so that two of them look alike has none.

    >>> from tidegate.services import loads
    >>> text = '''
    ... streams: {gps: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}}
    ... services: {fast: {from: gps, pipeline: [{filter: speed > 60}, {project: {taxi: vid, time: time}}]}}
    ... '''
    >>> output_keys(loads(text))
    {'fast': 'taxi'}
    """
    found: dict[str, str | None] = {name: stream.key for name, stream in definitions.streams.items()}
    for service in ordered(definitions.services, Findings()):  # services that read each other are refused elsewhere
        keys = [found.get(each) for each in service.inputs]
        found[service.name] = _unmasked(_behind(service.pipeline, keys), service.mask)
    return {name: key for name in definitions.services if (key := found[name]) is not None}


def _behind(pipeline: Iterable[Operator], keys: list[str | None]) -> str | None:
    key = keys[0] if keys and len(set(keys)) == 1 else None
    for each in pipeline:
        match each:
            case Aggregate() | Incremental():
                key = each.by[0] if len(each.by) == 1 else None
            case Join():
                key = each.on[0] if len(each.on) == 1 else None
            case Project():
                key = None if key is None else _projected(each, key)
            case Custom():
                key = key if key is not None and each.schema.root.get(key) is not None else None
    return key


def _projected(project: Project, key: str) -> str | None:
    """What a projection calls the key; None: it is not there any more."""
    names = [name for name, each in project.attributes.items() if each.expression.strip() == key and each.type is None]
    if names:
        return key if key in names else names[0]
    return key if project.keep and key not in project.attributes else None


def _unmasked(key: str | None, masks: Mapping[str, Mask]) -> str | None:
    return None if key is None or (key in masks and masks[key].how != "hmac") else key
