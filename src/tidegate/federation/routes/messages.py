"""The messages by which brokers synchronize their tables, as frozen values and as JSON.

A table holds the filters that one broker requests from another for one service. Each step of a table has a version,
one more than the step before, and a digest of all entries after it. Two copies with the same version and digest are
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from tidegate.errors import FederationError, FilterError
from tidegate.filters import Filter
from tidegate.model import Schema

Path = tuple[str, ...]
"""The brokers on the way from the one that announces the path to the one that is reached."""
SchemaLookup = Callable[[str], Schema | None]
"""Returns the schema of a service by its name, or None."""

DIGEST_MODULUS = 1 << 128
MAX_NUMBER = (1 << 63) - 1
"""The highest version and entry number, so that both fit into 64-bit columns."""


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """A requested filter, under a number that its sender has chosen."""

    number: int
    filter: Filter
    text: str = field(default="", repr=False, compare=False)
    """The canonical text as the sender wrote it. A receiver with another schema may derive another one."""
    digest: int = field(init=False, repr=False, compare=False)
    """Hash of number and text. A table's digest is the sum of its entries', so that a step only adds and subtracts."""

    def __post_init__(self) -> None:
        if not self.text:
            object.__setattr__(self, "text", str(self.filter))
        content = f"{self.number} {self.filter.like_star:d} {self.text}".encode("utf-8", "surrogatepass")
        object.__setattr__(self, "digest", int.from_bytes(blake2b(content, digest_size=16).digest(), "big"))


@dataclass(frozen=True, slots=True)
class TableState:
    """Version and digest of a copy of a table. The default is the state of an empty table."""

    version: int = 0
    digest: int = 0

    def after(self, add: Iterable[RouteEntry], remove: Iterable[RouteEntry], version: int) -> TableState:
        """Return the state after entries were added and removed."""
        digest = self.digest + sum(entry.digest for entry in add) - sum(entry.digest for entry in remove)
        return TableState(version, digest % DIGEST_MODULUS)


@dataclass(frozen=True, slots=True)
class Hello:
    """Starts a session, is a heartbeat, and is sent when a step is missing. The answer brings the missing steps."""

    tables: Mapping[str, TableState] = field(default_factory=dict)
    """By service, the state of the receiver's table as the sender of this message has it."""
    paths: tuple[Path, ...] = ()
    """The brokers that the receiver reaches through the sender."""


@dataclass(frozen=True, slots=True)
class Update:
    """One step of a table. It is applied completely or not at all, and adds entries before it removes others."""

    service: str
    state: TableState
    """The state after the step."""
    add: tuple[RouteEntry, ...] = ()
    remove: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteTable:
    """A whole table. It replaces the receiver's copy."""

    service: str
    state: TableState
    entries: tuple[RouteEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Reach:
    """The brokers that the receiver reaches through the sender have changed."""

    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class LinkRefusal:
    """The sender gives the link up, because it would close a loop."""

    loop: Path
    """The brokers on the loop; the first is also the last."""


Message = Hello | Update | RouteTable | Reach | LinkRefusal


class Sent(NamedTuple):
    """A message to send to a neighbour."""

    to: str
    message: Message


# JSON ----------------------------------------------------------------------------


def to_json(message: Message) -> dict[str, Any]:
    """Return a message as a JSON object."""
    match message:
        case Hello(tables, paths):
            states = {service: _state(state) for service, state in tables.items()}
            return {"type": "hello", "tables": states, "paths": [list(path) for path in paths]}
        case Update(service, state, add, remove):
            changes = {"add": [_entry(entry) for entry in add], "remove": list(remove)}
            return {"type": "update", "service": service, **_state(state), **changes}
        case RouteTable(service, state, entries):
            return {"type": "table", "service": service, **_state(state), "entries": list(map(_entry, entries))}
        case Reach(paths):
            return {"type": "reach", "paths": [list(path) for path in paths]}
        case LinkRefusal(loop):
            return {"type": "refusal", "loop": list(loop)}


def _state(state: TableState) -> dict[str, Any]:
    return {"version": state.version, "digest": f"{state.digest:032x}"}


def _entry(entry: RouteEntry) -> dict[str, Any]:
    filter_ = entry.filter
    if filter_.like_star:  # the canonical text does not say how LIKE reads a pattern that is a field
        return {"number": entry.number, "filter": filter_.text, "params": list(filter_.params), "like_star": True}
    return {"number": entry.number, "filter": entry.text}


def from_json(document: Mapping[str, Any], schema_of: SchemaLookup) -> Message:
    """Read a message from its JSON object. Raises a `FederationError` if it is malformed.

    Filters are typed by the schema of their service. A filter that does not fit the schema stays untyped.
    """
    try:
        return _read(document, schema_of)
    except (KeyError, TypeError, ValueError, AttributeError, FilterError) as exc:
        raise FederationError(f"expected a message of a broker, not {document!r:.120}: {exc!r}") from exc


def _read(document: Mapping[str, Any], schema_of: SchemaLookup) -> Message:
    match document["type"]:
        case "hello":
            tables = {str(service): _read_state(state) for service, state in document["tables"].items()}
            return Hello(tables, _read_paths(document["paths"]))
        case "update":
            add = _read_entries(document["add"], schema_of(document["service"]))
            remove = tuple(map(_read_number, document["remove"]))
            _require_distinct([*(entry.number for entry in add), *remove])
            return Update(document["service"], _read_state(document), add, remove)
        case "table":
            entries = _read_entries(document["entries"], schema_of(document["service"]))
            _require_distinct([entry.number for entry in entries])
            return RouteTable(document["service"], _read_state(document), entries)
        case "reach":
            return Reach(_read_paths(document["paths"]))
        case "refusal":
            return LinkRefusal(tuple(map(str, document["loop"])))
    raise ValueError(f"type {document['type']!r}; expected hello, update, table, reach or refusal")


def _read_number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"expected a number from 0 to {MAX_NUMBER}, not {value!r:.40}")
    return value


def _require_distinct(numbers: Sequence[int]) -> None:
    """Raise `ValueError` if a number occurs twice: one of the two entries could never be removed."""
    if len(set(numbers)) < len(numbers):
        repeated = next(number for n, number in enumerate(numbers) if number in numbers[:n])
        raise ValueError(f"expected the number of each entry once, not {repeated} twice")


def _read_state(document: Mapping[str, Any]) -> TableState:
    return TableState(_read_number(document["version"]), int(document["digest"], 16))


def _read_paths(paths: Iterable[Iterable[str]]) -> tuple[Path, ...]:
    return tuple(tuple(map(str, path)) for path in paths)


def _read_entries(documents: Iterable[Mapping[str, Any]], schema: Schema | None) -> tuple[RouteEntry, ...]:
    return tuple(_read_entry(document, schema) for document in documents)


def _read_entry(document: Mapping[str, Any], schema: Schema | None) -> RouteEntry:
    number, text = _read_number(document["number"]), document["filter"]
    params, like_star = document.get("params", ()), document.get("like_star", False)
    try:
        filter_ = Filter(text, schema, params, like_star=like_star)
    except FilterError:  # the sender has another schema: only this filter stays untyped
        filter_ = Filter(text, None, params, like_star=like_star)
    return RouteEntry(number, filter_, "" if like_star else text)
