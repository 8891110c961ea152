"""Definitions from YAML files, texts and dicts: every problem at once, each with its place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, TypeVar, cast

from tidegate.errors import DefinitionError, DefinitionProblem, did_you_mean
from tidegate.model.types import Array, Struct
from tidegate.services import text as texts
from tidegate.services.definitions import (
    NONE,
    Access,
    Definitions,
    Demo,
    Files,
    Http,
    Kafka,
    Mask,
    Mqtt,
    OnViolation,
    Path,
    Place,
    Property,
    Qos,
    Retention,
    Service,
    Source,
    Stream,
    StreamAccess,
)
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import Enrich
from tidegate.services.pipeline import read_pipeline
from tidegate.services.quality import METRICS, read_figure
from tidegate.services.schemas import read_schema, read_texts

DEMOS = ("anpr", "gps")
"""The built-in generators."""
MAX_NAME = 64

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}")
_FORMATS = ("csv", "ndjson", "parquet")
_ON_VIOLATION = ("quarantine", "drop", "flag", "fail")
_MASKS = ("drop", "hmac", "truncate", "round")
_STREAM_KEYS = (
    *("schema", "event_time", "key", "partitions", "constraints", "terms"),
    *("source", "retention", "themes", "description", "access"),
)
_SERVICE_KEYS = (
    *("from", "pipeline", "constraints", "on_violation", "mask"),
    *("qos", "terms", "themes", "description", "access", "properties", "categories"),
)
_CONNECTION = "the name of a connection of the profile"
_CALLERS = "a list of callers: names of keys, subjects of tokens, or role:NAME"
_PROMISES = {"latency_p99" if name == "latency" else name: metric for name, metric in METRICS.items()}
MAX_REMOTE_VALUES = 5_000
"""Of one stream or service that comes over the network: attributes, operators and whatever they hold. Each takes up to
half a millisecond to check, again whenever definitions change."""
MAX_REMOTE_TOTAL = 20_000
"""Of all definitions that come in one request."""
_EXAMPLE = "{streams: {NAME: {schema: ...}}, services: {NAME: {from: ..., pipeline: [...]}}}"

Defined = TypeVar("Defined", Stream, Service)


def load(paths: Iterable[str | FilePath] | str | FilePath) -> Definitions:
    """Read the definitions of some files, which share their names.

    Raises a `DefinitionError` with every problem. Paths of data files inside
    are relative to the file that has them, and absolute in what comes back.
    """
    return _or_raise(*read(paths))


def loads(text: str, name: str = "<text>") -> Definitions:
    """Read the definitions of a YAML text.

    >>> loads("streams: {gps: {schema: {vid: string}, sauce: {http: {}}}}", "city.yaml")
    Traceback (most recent call last):
    tidegate.errors.DefinitionError: city.yaml:1: streams.gps.sauce: unknown key 'sauce'; did you mean 'source'?
    """
    reading = _Reading()
    reading.add_text(text, name)
    return _or_raise(*reading.result())


def load_texts(texts: Mapping[str, str]) -> Definitions:
    """Read the definitions of texts by their names, which came from elsewhere.

    Paths inside must be absolute, and there may be `MAX_REMOTE_VALUES` values in each definition.
    """
    reading = _Reading(remote=True)
    for name, text in texts.items():
        reading.add_text(text, name)
    reading.need_absolute()
    return _or_raise(*reading.result())


def from_dict(document: Mapping[str, Any], *, remote: bool = False) -> Definitions:
    """Read definitions from a dict of the same form as YAML's; `remote`: they came from elsewhere, see `load_texts`."""
    reading = _Reading(remote=remote)
    reading.add(document, Findings())
    if remote:
        reading.need_absolute()
    return _or_raise(*reading.result())


def read(paths: Iterable[str | FilePath] | str | FilePath) -> tuple[Definitions, list[DefinitionProblem], set[str]]:
    """Read files as `load` does, but give what could be read, the problems, and the names that have some."""
    reading = _Reading()
    for path in [paths] if isinstance(paths, str | FilePath) else list(paths):
        reading.add_file(FilePath(path))
    return reading.result()


def _or_raise(found: Definitions, problems: list[DefinitionProblem], _: set[str]) -> Definitions:
    if problems:
        raise DefinitionError(problems)
    return found


class _Reading:
    """Documents that share their names."""

    def __init__(self, *, remote: bool = False) -> None:
        self.remote, self.values = remote, 0
        self.streams: dict[str, Stream] = {}
        self.services: dict[str, Service] = {}
        self.broken: set[str] = set()
        self.places: dict[Path, Place] = {}
        self.problems: list[DefinitionProblem] = []
        self.names: dict[str, Path] = {}

    def result(self) -> tuple[Definitions, list[DefinitionProblem], set[str]]:
        made = Definitions(
            MappingProxyType(self.streams), MappingProxyType(self.services), MappingProxyType(self.places)
        )
        return made, self.problems, self.broken

    def add_file(self, path: FilePath) -> None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            self.problems.append(DefinitionProblem("", f"can't read it: {reason}", str(path)))
            return
        self.add_text(text, str(path), path.resolve().parent)

    def add_text(self, text: str, name: str, folder: FilePath | None = None) -> None:
        findings = Findings(file=name)
        document = texts.read(text, name, findings)
        if document is None:
            self.problems += findings.problems
        else:
            self.add(document, findings, folder)

    def add(self, document: Any, findings: Findings, folder: FilePath | None = None) -> None:
        if isinstance(document, Mapping):  # x-...: a place for anchors
            document = {k: v for k, v in document.items() if not (isinstance(k, str) and k.startswith("x-"))}
        found = Spot(document, (), findings).entries(("streams", "services"), f"definitions, such as {_EXAMPLE}")
        for name, spot in _pairs(found, "streams", "streams by name"):
            self.define(self.streams, name, spot, lambda name, spot: _stream_in(folder, read_stream_at(name, spot)))
        for name, spot in _pairs(found, "services", "services by name"):
            self.define(self.services, name, spot, lambda name, spot: _service_in(folder, read_service_at(name, spot)))
        self.problems += findings.problems
        self.places.update({path: place for path, place in findings.places.items() if path not in self.places})

    def need_absolute(self) -> None:
        """Note every path that means something else where it is read than where it was written."""
        findings = Findings(self.places)
        for stream in self.streams.values():
            if isinstance(stream.source, Files):
                _note_relative(findings, ("streams", stream.name, "source"), stream.source.path)
        for service in self.services.values():
            for n, each in enumerate(service.pipeline):
                if isinstance(each, Enrich) and each.table.path is not None:
                    _note_relative(findings, ("services", service.name, "pipeline", n), each.table.path)
        self.problems += findings.problems

    def define(self, into: dict[str, Defined], name: str, spot: Spot, make: Callable[[str, Spot], Defined]) -> None:
        before = len(spot.findings.problems)
        note_name(name, spot)
        if self.remote and not self.is_small(spot):
            self.broken.add(name)
            return
        if name in self.names:
            first = self.names[name]
            place = self.places.get(first) or spot.findings.places.get(first)
            spot.blame(f"the name {name!r} is taken already by {first[0]}.{name}{f' at {place}' if place else ''}")
        self.names.setdefault(name, spot.path)
        made = make(name, spot)
        if len(spot.findings.problems) > before:
            self.broken.add(name)
        else:
            into[name] = made

    def is_small(self, spot: Spot) -> bool:
        """Note a definition that has too many values, or that is one too many."""
        count = spot.count_values(MAX_REMOTE_VALUES)
        self.values += count
        if count > MAX_REMOTE_VALUES:
            spot.blame(f"expected at most {MAX_REMOTE_VALUES:,} values in one definition that is sent")
        elif self.values > MAX_REMOTE_TOTAL:
            spot.blame(f"expected at most {MAX_REMOTE_TOTAL:,} values in one request: send definitions one by one")
        return count <= MAX_REMOTE_VALUES and self.values <= MAX_REMOTE_TOTAL


def _pairs(found: Mapping[str, Spot], key: str, expected: str) -> list[tuple[str, Spot]]:
    return list(found[key].pairs(expected).items()) if key in found else []


def note_name(name: str, spot: Spot) -> None:
    """Note what is wrong with the name of a stream or service."""
    if name.endswith((".quarantine", ".quarantine.replayed")):
        end = ".replayed" if name.endswith(".replayed") else ".quarantine"
        spot.blame(f"names that end in {end} are reserved for what a service refuses")
    elif name.startswith("_"):
        spot.blame("names that start with _ are reserved")
    elif not _NAME.fullmatch(name):
        spot.blame(
            f"expected a name of letters, digits, _ . and -, at most {MAX_NAME}, the first a letter or digit, "
            f"not {name[:80]!r}"
        )


def _stream_in(folder: FilePath | None, made: Stream) -> Stream:
    """Make the path of its files absolute, seen from a folder."""
    if folder is None or not isinstance(made.source, Files):
        return made
    return replace(made, source=replace(made.source, path=_path(folder, made.source.path)))


def _service_in(folder: FilePath | None, made: Service) -> Service:
    """Make the paths of its tables absolute, seen from a folder."""
    if folder is None:
        return made
    pipeline = tuple(
        replace(each, table=replace(each.table, path=_path(folder, each.table.path)))
        if isinstance(each, Enrich) and each.table.path is not None
        else each
        for each in made.pipeline
    )
    return replace(made, pipeline=pipeline)


def _note_relative(findings: Findings, path: Path, found: str) -> None:
    if "://" not in found and not FilePath(found).is_absolute():
        findings.blame(path, f"expected an absolute path of the machine that runs it, not {found!r}")


def _path(folder: FilePath, path: str) -> str:
    return path if "://" in path else str(folder / path)


# Streams ---------------------------------------------------------------------


def read_stream_at(name: str, spot: Spot) -> Stream:
    """Read a stream."""
    found = spot.entries(_STREAM_KEYS, "a stream, such as {schema: {speed: float64}}")
    schema = read_schema(found, spot.at("schema", None))
    key = found["key"].text("an attribute") if "key" in found else None
    field = schema.root.get(key) if key else None
    if key and schema.root.fields:
        names = [each.name for each in schema.root]
        if field is None:
            found["key"].refuse(f"one of the attributes {', '.join(names[:8])}", did_you_mean(key, names))
        elif isinstance(field.type, Struct | Array):
            found["key"].refuse(f"an attribute with a single value, as {key} is {field.type}")
    return Stream(
        name,
        schema,
        key,
        found["partitions"].whole("a number of partitions from 1 to 1024", 1, 1024) if "partitions" in found else 1,
        _source(found["source"]) if "source" in found else Http(),
        _retention(found["retention"]) if "retention" in found else Retention(),
        _themes(found),
        _description(found),
        _stream_access(found["access"]) if "access" in found else StreamAccess(),
    )


def _stream_access(spot: Spot) -> StreamAccess:
    if not isinstance(spot.value, Mapping):
        return StreamAccess(_stream_to(spot))
    found = spot.entries(("to", "publish"), "who sees it and who may fill it, such as {to: [police], publish: [van]}")
    return StreamAccess(
        _stream_to(found["to"]) if "to" in found else "keys",
        found["publish"].texts(_CALLERS) if "publish" in found else None,
    )


def _stream_to(spot: Spot) -> Any:
    if isinstance(spot.value, str):
        if spot.value != "keys":
            spot.refuse(f"keys, or {_CALLERS}, as a raw stream is never public")
        return "keys"
    return _to(spot)


def _source(spot: Spot) -> Source:
    value = spot.value
    if value == "http":
        return Http()
    if not isinstance(value, Mapping) or len(value) != 1:
        spot.refuse(f"one source, such as {{http: {{}}}}; there are {', '.join(_SOURCES)}")
        return Http()
    found = spot.entries(tuple(_SOURCES), "a source")
    for name, inner in found.items():
        return _SOURCES[name](inner)
    if value == {"http": None}:
        return Http()
    for name in value:
        if name in _SOURCES:
            spot.at(str(name), None).refuse(f"the settings of {name}")
    return Http()


def _http(spot: Spot) -> Source:
    spot.entries((), "nothing: {http: {}}")
    return Http()


def _demo(spot: Spot) -> Source:
    if not isinstance(spot.value, Mapping):
        return Demo(spot.choice(DEMOS))
    found = spot.entries(("kind", "rate", "seed"), "a demo")
    kind = found.get("kind", spot.at("kind", None)).choice(DEMOS)
    made = Demo(kind)
    return Demo(
        kind,
        found["rate"].number("events a second, above 0", 0, 1e9, above=True) if "rate" in found else made.rate,
        found["seed"].whole("a whole number, 0 or more", 0) if "seed" in found else made.seed,
    )


def _files(spot: Spot) -> Source:
    what = "a file, a folder or a pattern, such as data/*.csv"
    if not isinstance(spot.value, Mapping):
        return Files(spot.text(what))
    found = spot.entries(("path", "format", "speed"), "files")
    return Files(
        found.get("path", spot.at("path", None)).text(what),
        cast("Any", found["format"].choice(_FORMATS)) if "format" in found else None,
        found["speed"].number("a speed above 0", 0, 1e9, above=True) if "speed" in found else None,
    )


def _kafka(spot: Spot) -> Source:
    if not isinstance(spot.value, Mapping):
        return Kafka(spot.text("a topic"))
    found = spot.entries(("topic", "brokers", "connection"), "a topic")
    topic = found.get("topic", spot.at("topic", None)).text("a topic")
    if "connection" in found:
        _refuse_beside_connection(found, ("brokers",))
        return Kafka(topic, connection=found["connection"].text(_CONNECTION))
    if "brokers" not in found:
        return Kafka(topic)
    return Kafka(topic, found["brokers"].text("host:port, or several with commas"))


def _mqtt(spot: Spot) -> Source:
    if not isinstance(spot.value, Mapping):
        return Mqtt(spot.text("a topic, such as fleet/+/gps"))
    found = spot.entries(("topic", "broker", "username", "password_env", "connection"), "a topic")
    topic = found.get("topic", spot.at("topic", None)).text("a topic, such as fleet/+/gps")
    if "connection" in found:
        _refuse_beside_connection(found, ("broker", "username", "password_env"))
        return Mqtt(topic, connection=found["connection"].text(_CONNECTION))
    given = {key: each.text("text") for key, each in found.items() if key != "topic"}
    return Mqtt(topic, **given)


def _refuse_beside_connection(found: Mapping[str, Spot], keys: Iterable[str]) -> None:
    for key in keys:
        if key in found:
            found[key].blame(f"expected {key} or a connection, which has it already, not both")


_SOURCES: dict[str, Callable[[Spot], Source]] = {
    "http": _http,
    "demo": _demo,
    "files": _files,
    "kafka": _kafka,
    "mqtt": _mqtt,
}


def _retention(spot: Spot) -> Retention:
    if not isinstance(spot.value, Mapping):
        return Retention(_age(spot))
    found = spot.entries(("age", "size"), "a retention, such as 24h or {age: 24h, size: 1GB}")
    return Retention(
        _age(found["age"]) if "age" in found else Retention().age_s, found["size"].size() if "size" in found else None
    )


def _age(spot: Spot) -> float | None:
    return None if spot.value == "forever" else spot.seconds()


# Services --------------------------------------------------------------------


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
        _themes(found),
        _description(found),
        _access(found["access"]) if "access" in found else Access(),
        _frozen(_properties(found["properties"]) if "properties" in found else {}),
        found["categories"].texts("a category, or a list of categories") if "categories" in found else (),
    )


def _access(spot: Spot) -> Access:
    if not isinstance(spot.value, Mapping):
        return Access(_to(spot))
    found = spot.entries(("to", "owners", "fields"), "who sees it, such as {to: [police], fields: {vid: [police]}}")
    if "owners" in found:
        if "to" in found:
            found["owners"].blame("expected `to` or `owners`, which is another word for it, not both")
        found["to"] = found["owners"]
    fields = found["fields"].pairs("callers by attribute, such as {vid: [police]}") if "fields" in found else {}
    return Access(
        _to(found["to"]) if "to" in found else "keys",
        _frozen({attribute: each.texts(_CALLERS) for attribute, each in fields.items()}),
    )


def _to(spot: Spot) -> Any:
    if not isinstance(spot.value, str):
        names = spot.texts(f"public, keys, or {_CALLERS}")
        if not names and spot.value == []:
            spot.refuse("at least one caller")
        return names
    return spot.choice(("public", "keys"))


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
        _age(found["retention"]) if "retention" in found else Retention().age_s,
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


def _themes(found: Mapping[str, Spot]) -> tuple[str, ...]:
    return found["themes"].texts("a theme, or a list of themes") if "themes" in found else ()


def _description(found: Mapping[str, Spot]) -> str:
    return found["description"].text("text") if "description" in found and found["description"].value != "" else ""


def _frozen(given: dict[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(given) if given else NONE
