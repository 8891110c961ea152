"""Data lineage: which attributes the values and ids of a service's events are computed from, across services.

An id may be computed from attributes: the `by` of an aggregate, or anything that a producer puts into its own ids. So a
caller who may not see an attribute may not see ids that are computed from it either, neither in that service nor
downstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from tidegate.errors import ExpressionError
from tidegate.services import expressions
from tidegate.services.check import ordered
from tidegate.services.definitions import Definitions, Service, Stream
from tidegate.services.findings import Findings
from tidegate.services.operators import (
    Aggregate,
    Custom,
    Enrich,
    Incremental,
    Join,
    Lookup,
    Merge,
    Operator,
    PatternOperator,
    Previous,
    Project,
)
from tidegate.services.schema_inference import joined_name

T = TypeVar("T")
QualifiedAttribute = tuple[str, str]
"""Stream or service, and an attribute of it or `_id`."""
Origins = frozenset[QualifiedAttribute]

NO_ORIGINS: Origins = frozenset()
_ID = "_id"
_TABLE, _WINDOW = "table of enrich", "window"
"""Pseudo attributes of a service: the columns of its tables, and its windows."""
_WINDOW_BOUNDS = ("window_start", "window_end")
_MATCH_BOUNDS = ("match_start", "match_end")


@dataclass(frozen=True)
class Lineage:
    """The lineage of one stream or service, back to its direct inputs."""

    inputs: tuple[str, ...]
    """The streams and services that it reads; empty for a raw stream."""
    attributes: Mapping[str, Origins]
    """For each attribute, the attributes of the inputs that its values are computed from."""
    rest: Origins
    """The same for attributes that the definition does not name: the columns of tables."""
    passed: tuple[str, ...]
    """The inputs whose unnamed attributes are passed through."""
    ids: Origins
    """The attributes that ids are computed from and reveal; empty if ids are hashed."""

    def origins(self, attribute: str) -> Origins:
        """Return the direct origins of an attribute or of `_id`."""
        if attribute == _ID:
            return self.ids
        return _lookup(attribute, self.attributes, self.rest, self.passed)


class Lineages:
    """The lineage of all streams and services. Queries follow chains, so long chains cost time but little memory."""

    def __init__(self, definitions: Definitions) -> None:
        """Analyse definitions. They may be incomplete: a missing input has no origins."""
        self._all = {name: _of_stream(stream) for name, stream in definitions.streams.items()}
        for service in ordered(definitions.services, Findings()):
            inputs = [name for name in service.inputs if name in self._all]
            self._all[service.name] = _of_service(service, {name: self._all[name] for name in inputs})
        self._readers: dict[str, list[str]] = {}
        for reader, lineage in self._all.items():
            for name in lineage.inputs:
                self._readers.setdefault(name, []).append(reader)

    def __contains__(self, name: str) -> bool:
        """Return True if there is a stream or service of this name."""
        return name in self._all

    def upstream(self, name: str) -> frozenset[str]:
        """Return a stream or service and everything that it reads, directly or indirectly."""
        return _reachable([name], lambda reader: self._all[reader].inputs)

    def downstream(self, names: Iterable[str]) -> frozenset[str]:
        """Return some streams and services and everything that reads them, directly or indirectly."""
        return _reachable((name for name in names if name in self._all), lambda name: self._readers.get(name, ()))

    def raw_streams(self, name: str) -> frozenset[str]:
        """Return the raw streams that the events of a service come from."""
        return frozenset(stream for stream in self.upstream(name) if not self._all[stream].inputs)

    def of_ids(self, name: str) -> Origins:
        """Return all origins, direct and indirect, of the ids of a stream or service.

        >>> from tidegate.services import loads
        >>> text = '''
        ... streams: {gps: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}}
        ... services:
        ...   counted: {from: gps, pipeline: [{aggregate: {count: n, by: [vid], window: {length: 1m}}}]}
        ...   bare: {from: counted, pipeline: [{project: {n: n, time: window_end}}]}
        ... '''
        >>> lineages = Lineages(loads(text))
        >>> ("gps", "vid") in lineages.of_ids("bare"), sorted(lineages.of_attributes("bare", ["n"]))
        (True, [('bare', 'n'), ('counted', 'n')])
        """
        return self._with_origins([(name, _ID)])

    def of_attributes(self, name: str, attributes: Iterable[str]) -> Origins:
        """Return some attributes of a stream or service and all their origins, direct and indirect."""
        return self._with_origins((name, attribute) for attribute in attributes)

    def of_everything(self, name: str) -> Origins:
        """Return all attributes of a stream or service and all their origins, direct and indirect."""
        lineage = self._all[name]
        return self._with_origins([*((name, attribute) for attribute in lineage.attributes), *lineage.rest])

    def _with_origins(self, origins: Iterable[QualifiedAttribute]) -> Origins:
        def direct(origin: QualifiedAttribute) -> Origins:
            lineage = self._all.get(origin[0])
            return NO_ORIGINS if lineage is None else lineage.origins(origin[1])

        return _reachable(origins, direct)


def _of_stream(stream: Stream) -> Lineage:
    attributes = {field.name: NO_ORIGINS for field in stream.schema.root}
    # A producer may put any attribute of an event into the event's id.
    ids = frozenset((stream.name, attribute) for attribute in attributes)
    return Lineage((), MappingProxyType(attributes), NO_ORIGINS, (), ids)


def _of_service(service: Service, inputs: Mapping[str, Lineage]) -> Lineage:
    main = [name for name in service.main if name in inputs]
    state = _State.of({name: inputs[name] for name in main})
    for n, operator in enumerate(service.pipeline):
        if n == 0 and isinstance(operator, Join) and main:  # the inputs in `from` are joined, not merged
            state = _State.of({main[0]: inputs[main[0]]})
            for name in main[1:]:
                state = _joined(state, name, inputs[name], operator.on)
        state = _apply(operator, state, inputs, service.name)
    attributes = dict(state.attributes)
    for key, mask in service.mask.items():
        if mask.how in ("hmac", "drop"):  # the masked value reveals nothing about its origins
            attributes[key] = NO_ORIGINS
    # The ids of a service with masks are hashed when they are written.
    ids = NO_ORIGINS if service.mask else state.ids
    return Lineage(tuple(inputs), MappingProxyType(attributes), state.rest, state.passed, ids)


def _lookup(attribute: str, attributes: Mapping[str, Origins], rest: Origins, passed: Iterable[str]) -> Origins:
    origins = attributes.get(attribute)
    return origins if origins is not None else rest | {(name, attribute) for name in passed}


@dataclass(frozen=True)
class _State:
    """The lineage of the events between two operators. The fields are those of `Lineage`."""

    attributes: Mapping[str, Origins]
    rest: Origins
    passed: tuple[str, ...]
    ids: Origins

    @classmethod
    def of(cls, inputs: Mapping[str, Lineage]) -> _State:
        """Return the state before the first operator. An event may come from any of the inputs."""
        attributes: dict[str, Origins] = {}
        for name, lineage in inputs.items():
            for key in lineage.attributes:
                attributes[key] = attributes.get(key, NO_ORIGINS) | {(name, key)}
        passed = tuple(name for name, lineage in inputs.items() if lineage.rest or lineage.passed)
        return cls(attributes, NO_ORIGINS, passed, frozenset((name, _ID) for name in inputs))

    def get(self, attribute: str) -> Origins:
        """Return the origins of an attribute or of `_id`."""
        if attribute == _ID:
            return self.ids
        return _lookup(attribute, self.attributes, self.rest, self.passed)

    def every(self) -> Origins:
        """Return the origins of all attributes together."""
        return _union(self.attributes.values()) | self.get(_TABLE)


def _apply(operator: Operator, state: _State, inputs: Mapping[str, Lineage], service: str) -> _State:
    """Return the state after an operator."""
    match operator:
        case Project():
            return _project(operator, state)
        case Aggregate() | Incremental():
            return _aggregate(operator, state, service)
        case Merge():
            return _merged(operator, state, inputs)
        case Join():
            for branch in operator.inputs:
                if branch.stream in inputs:
                    state = _joined(state, branch.stream, inputs[branch.stream], operator.on)
        case Lookup() if operator.stream in inputs:
            # The id of an event does not change, and reveals nothing of the other stream.
            added = _joined(state, operator.stream, inputs[operator.stream], operator.on)
            return replace(added, ids=state.ids)
        case Previous():
            earlier = {name: state.get(source) for name, source in operator.attributes.items()}
            return replace(state, attributes={**state.attributes, **earlier})
        case PatternOperator():
            return _pattern(operator, state, service)
        case Enrich():
            columns = _union(map(state.get, operator.on)) | {(service, _TABLE)}
            return replace(state, rest=state.rest | columns)
        case Custom():
            every = state.every() | state.ids
            keyed = NO_ORIGINS if operator.window is None else _union(map(state.get, operator.by))
            return _State({field.name: every for field in operator.schema.root}, NO_ORIGINS, (), state.ids | keyed)
    return state


def _merged(operator: Merge, state: _State, inputs: Mapping[str, Lineage]) -> _State:
    """Return the state of events that come from any of several inputs."""
    other = _State.of({branch.stream: inputs[branch.stream] for branch in operator.inputs if branch.stream in inputs})
    names = dict.fromkeys((*state.attributes, *other.attributes))
    attributes = {
        name: state.attributes.get(name, NO_ORIGINS) | other.attributes.get(name, NO_ORIGINS) for name in names
    }
    passed = tuple(dict.fromkeys((*state.passed, *other.passed)))
    return _State(attributes, state.rest | other.rest, passed, state.ids | other.ids)


def _joined(state: _State, name: str, lineage: Lineage, on: tuple[str, ...]) -> _State:
    """Return the state after a join with one more input."""
    other = _State.of({name: lineage})
    attributes = dict(state.attributes)
    for key, origins in other.attributes.items():
        if key in on:
            attributes[key] = attributes.get(key, NO_ORIGINS) | origins
        else:
            attributes[joined_name(name, key) if key in state.attributes else key] = origins
    passed = tuple(dict.fromkeys((*state.passed, *other.passed)))
    return _State(attributes, state.rest, passed, state.ids | other.ids)


def _pattern(operator: PatternOperator, state: _State, service: str) -> _State:
    """Return the state after a pattern: each step holds whole events, and the id has the key and the time."""
    window: Origins = frozenset({(service, _WINDOW)})
    every = state.every()
    steps = {step.name: every for step in operator.steps if not step.absent}
    keys = {name: state.get(name) for name in operator.by}
    bounds = dict.fromkeys(_MATCH_BOUNDS, window)
    return _State({**bounds, **steps, **keys}, NO_ORIGINS, (), _union(keys.values()) | window)


def _project(operator: Project, state: _State) -> _State:
    computed = {name: _expression_origins(value.expression, state) for name, value in operator.attributes.items()}
    if operator.keep:
        return replace(state, attributes={**state.attributes, **computed})
    return _State(computed, NO_ORIGINS, (), state.ids)


def _expression_origins(text: str, state: _State) -> Origins:
    try:
        return _union(map(state.get, expressions.names(text)))
    except ExpressionError:  # the check of definitions reports it
        return state.every() | state.ids


def _aggregate(operator: Aggregate | Incremental, state: _State, service: str) -> _State:
    window: Origins = frozenset({(service, _WINDOW)})
    attributes = dict.fromkeys(_WINDOW_BOUNDS, window)
    has_all = False
    for aggregation in operator.aggregations:
        if aggregation.name is None:  # the last event of a window, with all its attributes
            attributes, has_all = {**state.attributes, **attributes}, True
        else:
            attribute = aggregation.attribute
            attributes[aggregation.name] = NO_ORIGINS if attribute is None else state.get(attribute)
    keys = {name: state.get(name) for name in operator.by}
    ids = _union(keys.values()) | window
    return _State({**attributes, **keys}, state.rest if has_all else NO_ORIGINS, state.passed if has_all else (), ids)


def _union(parts: Iterable[Origins]) -> Origins:
    return frozenset().union(*parts)


def _reachable(starts: Iterable[T], successors: Callable[[T], Iterable[T]]) -> frozenset[T]:
    reached = set(starts)
    stack = list(reached)
    while stack:
        new = {*successors(stack.pop())} - reached
        reached |= new
        stack += new
    return frozenset(reached)
