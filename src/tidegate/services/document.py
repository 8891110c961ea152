"""Reads definitions from YAML files, texts and dicts, and reports all problems with their file and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, TypeVar

from tidegate.errors import DefinitionError, DefinitionProblem
from tidegate.services import text as texts
from tidegate.services.definitions import Definitions, Files, Path, Place, Service, Stream
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import Enrich
from tidegate.services.service_reading import read_service_at
from tidegate.services.stream_reading import read_stream_at

MAX_NAME = 64

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}")
MAX_REMOTE_VALUES = 5_000
"""YAML values of one stream or service that comes over HTTP. Each takes up to half a millisecond to check, again after
every change of definitions."""
MAX_REMOTE_TOTAL = 20_000
"""YAML values of all definitions of one request."""
_EXAMPLE = "{streams: {NAME: {schema: ...}}, services: {NAME: {from: ..., pipeline: [...]}}}"

Defined = TypeVar("Defined", Stream, Service)


def load(paths: Iterable[str | FilePath] | str | FilePath) -> Definitions:
    """Read the definitions of files. A name may occur once in all of them.

    Paths of data files are relative to the file that names them; the result has absolute paths. Raises a
    `DefinitionError` with all problems.
    """
    return _or_raise(*read(paths))


def loads(text: str, name: str = "<text>") -> Definitions:
    """Read the definitions of a YAML text. Raises a `DefinitionError` with all problems.

    >>> loads("streams: {gps: {schema: {vid: string}, sauce: {http: {}}}}", "city.yaml")
    Traceback (most recent call last):
    tidegate.errors.DefinitionError: city.yaml:1: streams.gps.sauce: unknown key 'sauce'; did you mean 'source'?
    """
    reading = _Reading()
    reading.add_text(text, name)
    return _or_raise(*reading.result())


def load_texts(texts: Mapping[str, str]) -> Definitions:
    """Read definitions that came over the network: YAML texts by file name. Raises a `DefinitionError`.

    Paths in them must be absolute, and each definition may have `MAX_REMOTE_VALUES` values.
    """
    reading = _Reading(remote=True)
    for name, text in texts.items():
        reading.add_text(text, name)
    reading.need_absolute()
    return _or_raise(*reading.result())


def from_dict(document: Mapping[str, Any], *, remote: bool = False) -> Definitions:
    """Read definitions from a dict in the form of a YAML file. `remote`: with the limits of `load_texts`.

    Raises a `DefinitionError` with all problems.
    """
    reading = _Reading(remote=remote)
    reading.add(document, Findings())
    if remote:
        reading.need_absolute()
    return _or_raise(*reading.result())


def read(paths: Iterable[str | FilePath] | str | FilePath) -> tuple[Definitions, list[DefinitionProblem], set[str]]:
    """Read files as `load` does. Returns the valid definitions, the problems, and the names with problems."""
    reading = _Reading()
    for path in [paths] if isinstance(paths, str | FilePath) else list(paths):
        reading.add_file(FilePath(path))
    return reading.result()


def _or_raise(definitions: Definitions, problems: list[DefinitionProblem], _: set[str]) -> Definitions:
    if problems:
        raise DefinitionError(problems)
    return definitions


class _Reading:
    """The definitions of several documents, and their problems so far."""

    def __init__(self, *, remote: bool = False) -> None:
        self.remote, self.values = remote, 0
        self.streams: dict[str, Stream] = {}
        self.services: dict[str, Service] = {}
        self.broken: set[str] = set()
        self.places: dict[Path, Place] = {}
        self.problems: list[DefinitionProblem] = []
        self.names: dict[str, Path] = {}

    def result(self) -> tuple[Definitions, list[DefinitionProblem], set[str]]:
        definitions = Definitions(
            MappingProxyType(self.streams), MappingProxyType(self.services), MappingProxyType(self.places)
        )
        return definitions, self.problems, self.broken

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
        sections = Spot(document, (), findings).entries(("streams", "services"), f"definitions, such as {_EXAMPLE}")
        for name, spot in _pairs(sections, "streams", "streams by name"):
            self.define(self.streams, name, spot, lambda name, spot: _stream_in(folder, read_stream_at(name, spot)))
        for name, spot in _pairs(sections, "services", "services by name"):
            self.define(self.services, name, spot, lambda name, spot: _service_in(folder, read_service_at(name, spot)))
        self.problems += findings.problems
        self.places.update({path: place for path, place in findings.places.items() if path not in self.places})

    def need_absolute(self) -> None:
        """Report relative paths, because the server would resolve them differently than the sender."""
        findings = Findings(self.places)
        for stream in self.streams.values():
            if isinstance(stream.source, Files):
                _note_relative(findings, ("streams", stream.name, "source"), stream.source.path)
        for service in self.services.values():
            for n, operator in enumerate(service.pipeline):
                if isinstance(operator, Enrich) and operator.table.path is not None:
                    _note_relative(findings, ("services", service.name, "pipeline", n), operator.table.path)
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
            spot.report(f"the name {name!r} is taken already by {first[0]}.{name}{f' at {place}' if place else ''}")
        self.names.setdefault(name, spot.path)
        definition = make(name, spot)
        if len(spot.findings.problems) > before:
            self.broken.add(name)
        else:
            into[name] = definition

    def is_small(self, spot: Spot) -> bool:
        """Return False, and report a definition, if it or all definitions together have too many values."""
        count = spot.count_values(MAX_REMOTE_VALUES)
        self.values += count
        if count > MAX_REMOTE_VALUES:
            spot.report(f"expected at most {MAX_REMOTE_VALUES:,} values in one definition that is sent")
        elif self.values > MAX_REMOTE_TOTAL:
            spot.report(f"expected at most {MAX_REMOTE_TOTAL:,} values in one request: send definitions one by one")
        return count <= MAX_REMOTE_VALUES and self.values <= MAX_REMOTE_TOTAL


def _pairs(sections: Mapping[str, Spot], key: str, expected: str) -> list[tuple[str, Spot]]:
    return list(sections[key].pairs(expected).items()) if key in sections else []


def note_name(name: str, spot: Spot) -> None:
    """Report a problem with the name of a stream or service at its spot."""
    if name.endswith((".quarantine", ".quarantine.replayed")):
        end = ".replayed" if name.endswith(".replayed") else ".quarantine"
        spot.report(f"names that end in {end} are reserved for what a service refuses")
    elif name.startswith("_"):
        spot.report("names that start with _ are reserved")
    elif not _NAME.fullmatch(name):
        spot.report(
            f"expected a name of letters, digits, _ . and -, at most {MAX_NAME}, the first a letter or digit, "
            f"not {name[:80]!r}"
        )


def _stream_in(folder: FilePath | None, stream: Stream) -> Stream:
    """Return a stream with the path of its files made absolute, relative to a folder."""
    if folder is None or not isinstance(stream.source, Files):
        return stream
    return replace(stream, source=replace(stream.source, path=_path(folder, stream.source.path)))


def _service_in(folder: FilePath | None, service: Service) -> Service:
    """Return a service with the paths of its tables made absolute, relative to a folder."""
    if folder is None:
        return service
    pipeline = tuple(
        replace(operator, table=replace(operator.table, path=_path(folder, operator.table.path)))
        if isinstance(operator, Enrich) and operator.table.path is not None
        else operator
        for operator in service.pipeline
    )
    return replace(service, pipeline=pipeline)


def _note_relative(findings: Findings, path: Path, file_path: str) -> None:
    if "://" not in file_path and not FilePath(file_path).is_absolute():
        findings.report(path, f"expected an absolute path of the machine that runs it, not {file_path!r}")


def _path(folder: FilePath, path: str) -> str:
    return path if "://" in path else str(folder / path)
