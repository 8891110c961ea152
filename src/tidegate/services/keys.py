"""Finds the key attribute of each service's output: the one that identifies the vehicle, camera, ... of an event."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.services.check import ordered
from tidegate.services.definitions import Definitions, Mask, Service
from tidegate.services.findings import Findings
from tidegate.services.operators import Aggregate, Custom, Incremental, Join, Merge, PatternOperator, Project


def output_keys(definitions: Definitions) -> dict[str, str]:
    """Return the key attribute of each service's output, by service. Services without a single known key are left out.

    A raw stream has its `key`, an aggregate or pattern its `by`, a join its `on`. A projection may rename the key.
    There is no key after a projection that computes or drops it, or after a mask that can map two keys to one value.

    >>> from tidegate.services import loads
    >>> text = '''
    ... streams: {gps: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}}
    ... services: {fast: {from: gps, pipeline: [{filter: speed > 60}, {project: {taxi: vid, time: time}}]}}
    ... '''
    >>> output_keys(loads(text))
    {'fast': 'taxi'}
    """
    keys: dict[str, str | None] = {name: stream.key for name, stream in definitions.streams.items()}
    for service in ordered(definitions.services, Findings()):  # cycles are reported elsewhere
        keys[service.name] = _unmasked(_key_after(service, keys), service.mask)
    return {name: key for name in definitions.services if (key := keys[name]) is not None}


def _key_after(service: Service, keys: Mapping[str, str | None]) -> str | None:
    """Return the key after all operators of a service; `keys` has those of the streams and services it reads."""
    main_keys = {keys.get(name) for name in service.main}
    key = main_keys.pop() if len(main_keys) == 1 else None
    for operator in service.pipeline:
        match operator:
            case Merge():
                key = key if all(keys.get(branch.stream) == key for branch in operator.inputs) else None
            case Aggregate() | Incremental() | PatternOperator():
                key = operator.by[0] if len(operator.by) == 1 else None
            case Join():
                key = operator.on[0] if len(operator.on) == 1 else None
            case Project():
                key = None if key is None else _projected(operator, key)
            case Custom():
                key = key if key is not None and operator.schema.root.get(key) is not None else None
    return key


def _projected(project: Project, key: str) -> str | None:
    """Return the name of the key after a projection; None if the projection drops or computes it."""
    names = [
        name
        for name, computed in project.attributes.items()
        if computed.expression.strip() == key and computed.type is None
    ]
    if names:
        return key if key in names else names[0]
    return key if project.keep and key not in project.attributes else None


def _unmasked(key: str | None, masks: Mapping[str, Mask]) -> str | None:
    return None if key is None or (key in masks and masks[key].how != "hmac") else key
