"""Where the values and the ids of a service's events come from, followed across services by their definitions.

An id may be made of attributes: the `by` of an aggregate, or whatever a producer
puts into an id of its own. So whoever may not see an attribute may not see the
ids either that were made of it, in the service itself and in all that read it.
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
    Merge,
    Operator,
    Project,
)
from tidegate.services.shapes import joined_name

T = TypeVar("T")
Origin = tuple[str, str]
"""An attribute of a stream or service, or its `_id`."""
Origins = frozenset[Origin]

NOTHING: Origins = frozenset()
_ID = "_id"
_TABLE, _WINDOW = "table of enrich", "window"
"""Origins that no attribute has: columns of tables, and windows."""
_WINDOW_BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True)
class Lineage:
    """Where the events of one stream or service come from, one step back."""

    inputs: tuple[str, ...]
    """What it reads; nothing: it is a raw stream."""
    attributes: Mapping[str, Origins]
    """By attribute, the attributes of the inputs that its values are made of."""
    rest: Origins
    """The same of attributes that the definition does not name: the columns of tables."""
    passed: tuple[str, ...]
    """The inputs of which attributes that nobody names are passed on."""
    ids: Origins
    """What ids are made of, as far as it is not hashed."""

    def origins(self, attribute: str) -> Origins:
        """Return what the values of an attribute, or of `_id`, are made of."""
        if attribute == _ID:
            return self.ids
        return _found(attribute, self.attributes, self.rest, self.passed)


class Lineages:
    """Where all streams and services come from. Follows them when asked: long chains cost time, never much memory."""

    def __init__(self, definitions: Definitions) -> None:
        """Read definitions, which may be incomplete: what is missing adds nothing."""
        self._all = {name: _of_stream(each) for name, each in definitions.streams.items()}
        for service in ordered(definitions.services, Findings()):
            inputs = [each for each in dict.fromkeys(service.inputs) if each in self._all]
            self._all[service.name] = _of_service(service, {each: self._all[each] for each in inputs})
        self._readers: dict[str, list[str]] = {}
        for name, each in self._all.items():
            for read in each.inputs:
                self._readers.setdefault(read, []).append(name)

    def __contains__(self, name: str) -> bool:
        """Say whether there is such a stream or service."""
        return name in self._all

    def upstream(self, name: str) -> frozenset[str]:
        """Return all streams and services that one is made of, and itself."""
        return _reached([name], lambda each: self._all[each].inputs)

    def downstream(self, names: Iterable[str]) -> frozenset[str]:
        """Return some streams and services, and all that are made of them."""
        return _reached((each for each in names if each in self._all), lambda each: self._readers.get(each, ()))

    def raw_streams(self, name: str) -> frozenset[str]:
        """Return the raw streams that the events of a service come from."""
        return frozenset(each for each in self.upstream(name) if not self._all[each].inputs)

    def of_ids(self, name: str) -> Origins:
        """Return all that the ids of a stream or service are made of.

        >>> from tidegate.services import loads
        >>> text = '''
        ... streams: {gps: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}}
        ... services:
        ...   counted: {from: gps, pipeline: [{aggregate: {count: n, by: [vid], window: {length: 1m}}}]}
        ...   bare: {from: counted, pipeline: [{project: {n: n, time: window_end}}]}
        ... '''
        >>> found = Lineages(loads(text))
        >>> ("gps", "vid") in found.of_ids("bare"), sorted(found.of_attributes("bare", ["n"]))
        (True, [('bare', 'n'), ('counted', 'n')])
        """
        return self._followed([(name, _ID)])

    def of_attributes(self, name: str, attributes: Iterable[str]) -> Origins:
        """Return all that some attributes of a stream or service are made of, themselves included."""
        return self._followed((name, each) for each in attributes)

    def of_everything(self, name: str) -> Origins:
        """Return all that the attributes of a stream or service are made of."""
        lineage = self._all[name]
        return self._followed([*((name, each) for each in lineage.attributes), *lineage.rest])

    def _followed(self, origins: Iterable[Origin]) -> Origins:
        def back(origin: Origin) -> Origins:
            lineage = self._all.get(origin[0])
            return NOTHING if lineage is None else lineage.origins(origin[1])

        return _reached(origins, back)


def _of_stream(stream: Stream) -> Lineage:
    attributes = {field.name: NOTHING for field in stream.schema.root}
    # A producer may put anything that it knows of an event into the event's id.
    ids = frozenset((stream.name, each) for each in attributes)
    return Lineage((), MappingProxyType(attributes), NOTHING, (), ids)


def _of_service(service: Service, inputs: Mapping[str, Lineage]) -> Lineage:
    state = _State.of(inputs)
    for operator in service.pipeline:
        state = _behind(operator, state, inputs, service.name)
    attributes = dict(state.attributes)
    for key, mask in service.mask.items():
        if mask.how in ("hmac", "drop"):  # what is left tells nothing of where it came from
            attributes[key] = NOTHING
    # The ids of a service with masks are hashed where they are written.
    ids = NOTHING if service.mask else state.ids
    return Lineage(tuple(inputs), MappingProxyType(attributes), state.rest, state.passed, ids)


def _found(attribute: str, attributes: Mapping[str, Origins], rest: Origins, passed: Iterable[str]) -> Origins:
    found = attributes.get(attribute)
    return found if found is not None else rest | {(each, attribute) for each in passed}


@dataclass(frozen=True)
class _State:
    """What is known between two operators."""

    attributes: Mapping[str, Origins]
    rest: Origins
    passed: tuple[str, ...]
    ids: Origins

    @classmethod
    def of(cls, inputs: Mapping[str, Lineage]) -> _State:
        """Return what comes in: of several inputs either may be where an event comes from."""
        attributes: dict[str, Origins] = {}
        for name, lineage in inputs.items():
            for key in lineage.attributes:
                attributes[key] = attributes.get(key, NOTHING) | {(name, key)}
        passed = tuple(name for name, each in inputs.items() if each.rest or each.passed)
        return cls(attributes, NOTHING, passed, frozenset((name, _ID) for name in inputs))

    def get(self, attribute: str) -> Origins:
        if attribute == _ID:
            return self.ids
        return _found(attribute, self.attributes, self.rest, self.passed)

    def every(self) -> Origins:
        return _all(self.attributes.values()) | self.get(_TABLE)


def _behind(operator: Operator, state: _State, inputs: Mapping[str, Lineage], service: str) -> _State:
    match operator:
        case Project():
            return _projected(operator, state)
        case Aggregate() | Incremental():
            return _aggregated(operator, state, service)
        case Join():
            return _joined(operator, inputs, state)
        case Enrich():
            columns = _all(map(state.get, operator.on)) | {(service, _TABLE)}
            return replace(state, rest=state.rest | columns)
        case Custom():
            every = state.every() | state.ids
            keyed = NOTHING if operator.window is None else _all(map(state.get, operator.by))
            return _State({field.name: every for field in operator.schema.root}, NOTHING, (), state.ids | keyed)
        case Merge():
            return _State.of(inputs)
    return state


def _projected(operator: Project, state: _State) -> _State:
    made = {name: _expressed(each.expression, state) for name, each in operator.attributes.items()}
    if operator.keep:
        return replace(state, attributes={**state.attributes, **made})
    return _State(made, NOTHING, (), state.ids)


def _expressed(text: str, state: _State) -> Origins:
    try:
        return _all(map(state.get, expressions.names(text)))
    except ExpressionError:  # it is refused elsewhere
        return state.every() | state.ids


def _aggregated(operator: Aggregate | Incremental, state: _State, service: str) -> _State:
    window: Origins = frozenset({(service, _WINDOW)})
    found = dict.fromkeys(_WINDOW_BOUNDS, window)
    has_all = False
    for each in operator.aggregations:
        if each.name is None:  # the last event of a window, with all of its attributes
            found, has_all = {**state.attributes, **found}, True
        else:
            found[each.name] = NOTHING if each.attribute is None else state.get(each.attribute)
    keys = {name: state.get(name) for name in operator.by}
    ids = _all(keys.values()) | window
    return _State({**found, **keys}, state.rest if has_all else NOTHING, state.passed if has_all else (), ids)


def _joined(operator: Join, inputs: Mapping[str, Lineage], state: _State) -> _State:
    if len(inputs) != 2:
        return state
    (left_name, left), (right_name, right) = inputs.items()
    found: dict[str, Origins] = {name: frozenset({(left_name, name)}) for name in left.attributes}
    for name in right.attributes:
        origins = frozenset({(right_name, name)})
        if name in operator.on:
            found[name] = found.get(name, NOTHING) | origins
        else:
            found[joined_name(right_name, name) if name in left.attributes else name] = origins
    return replace(_State.of(inputs), attributes=found)


def _all(given: Iterable[Origins]) -> Origins:
    return frozenset().union(*given)


def _reached(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> frozenset[T]:
    found = set(starts)
    waiting = list(found)
    while waiting:
        new = {*following(waiting.pop())} - found
        found |= new
        waiting += new
    return frozenset(found)
