"""What brokers say to each other about routes: frozen values, and their JSON form.

A table is what one broker has asked another for, of one service. Each step of it has a version,
one more than the last, and a digest of all entries after it: whoever holds both knows whether it
holds the same.
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
"""Brokers from the one who says it to the one who is reached."""
Schemas = Callable[[str], Schema | None]
"""The schema of a service, by its name."""

MODULUS = 1 << 128
MOST_NUMBER = 1 << 63
"""No table has as many steps, nor entries: whatever keeps one has room for its number."""


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """A filter that a broker wants events for, under a number of its own."""

    number: int
    filter: Filter
    text: str = field(default="", repr=False, compare=False)
    """The canonical text, as its sender wrote it: by the schema that a receiver has it may be another."""
    digest: int = field(init=False, repr=False, compare=False)
    """A number that stands for it: those of a table are summed, so that a step costs no more than it changes."""

    def __post_init__(self) -> None:
        if not self.text:
            object.__setattr__(self, "text", str(self.filter))
        said = f"{self.number} {self.filter.like_star:d} {self.text}".encode("utf-8", "surrogatepass")
        object.__setattr__(self, "digest", int.from_bytes(blake2b(said, digest_size=16).digest(), "big"))


@dataclass(frozen=True, slots=True)
class TableState:
    """How far somebody has a table."""

    version: int = 0
    digest: int = 0

    def after(self, add: Iterable[RouteEntry], remove: Iterable[RouteEntry], version: int) -> TableState:
        """How far it is with some entries more and others less."""
        digest = self.digest + sum(each.digest for each in add) - sum(each.digest for each in remove)
        return TableState(version, digest % MODULUS)


@dataclass(frozen=True, slots=True)
class Hello:
    """Said when a link is up, and whenever something is missing: what I have of your tables, whom you reach by me."""

    tables: Mapping[str, TableState] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """One step of a table: all of it or nothing, what comes before what goes."""

    service: str
    state: TableState
    """After it."""
    add: tuple[RouteEntry, ...] = ()
    remove: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A whole table, in place of what was there."""

    service: str
    state: TableState
    entries: tuple[RouteEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom you reach by me has changed."""

    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class LinkRefusal:
    """The link would close a loop, and is given up."""

    loop: Path


Message = Hello | Update | Table | Reach | LinkRefusal


class Sent(NamedTuple):
    """A message to send to a neighbour."""

    to: str
    message: Message


# JSON ----------------------------------------------------------------------------


def to_json(message: Message) -> dict[str, Any]:
    """Give a message as JSON has it."""
    match message:
        case Hello(tables, paths):
            states = {service: _state(state) for service, state in tables.items()}
            return {"type": "hello", "tables": states, "paths": [list(path) for path in paths]}
        case Update(service, state, add, remove):
            changed = {"add": [_entry(each) for each in add], "remove": list(remove)}
            return {"type": "update", "service": service, **_state(state), **changed}
        case Table(service, state, entries):
            return {"type": "table", "service": service, **_state(state), "entries": [_entry(each) for each in entries]}
        case Reach(paths):
            return {"type": "reach", "paths": [list(path) for path in paths]}
        case LinkRefusal(loop):
            return {"type": "refusal", "loop": list(loop)}


def _state(state: TableState) -> dict[str, Any]:
    return {"version": state.version, "digest": f"{state.digest:032x}"}


def _entry(entry: RouteEntry) -> dict[str, Any]:
    given = entry.filter
    if given.like_star:  # its canonical text does not say how LIKE reads a pattern that is a field
        return {"number": entry.number, "filter": given.text, "params": list(given.params), "like_star": True}
    return {"number": entry.number, "filter": entry.text}


def from_json(given: Mapping[str, Any], schemas: Schemas) -> Message:
    """Read a message; filters are typed by the schemas of their services, but for those that do not fit."""
    try:
        return _read(given, schemas)
    except (KeyError, TypeError, ValueError, AttributeError, FilterError) as exc:
        raise FederationError(f"expected a message of a broker, not {given!r:.120}: {exc!r}") from exc


def _read(given: Mapping[str, Any], schemas: Schemas) -> Message:
    match given["type"]:
        case "hello":
            tables = {str(service): _read_state(state) for service, state in given["tables"].items()}
            return Hello(tables, _read_paths(given["paths"]))
        case "update":
            add = _read_entries(given["add"], schemas(given["service"]))
            remove = tuple(map(_read_number, given["remove"]))
            _need_once([*(each.number for each in add), *remove])
            return Update(given["service"], _read_state(given), add, remove)
        case "table":
            entries = _read_entries(given["entries"], schemas(given["service"]))
            _need_once([each.number for each in entries])
            return Table(given["service"], _read_state(given), entries)
        case "reach":
            return Reach(_read_paths(given["paths"]))
        case "refusal":
            return LinkRefusal(tuple(map(str, given["loop"])))
    raise ValueError(f"type {given['type']!r}; expected hello, update, table, reach or refusal")


def _read_number(given: object) -> int:
    if type(given) is not int or not 0 <= given < MOST_NUMBER:
        raise ValueError(f"expected a number from 0 to {MOST_NUMBER - 1}, not {given!r:.40}")
    return given


def _need_once(numbers: Sequence[int]) -> None:
    """Refuse a step that names an entry twice: half of it would be taken, and never be dropped."""
    if len(set(numbers)) < len(numbers):
        twice = next(each for n, each in enumerate(numbers) if each in numbers[:n])
        raise ValueError(f"expected the number of each entry once, not {twice} twice")


def _read_state(given: Mapping[str, Any]) -> TableState:
    return TableState(_read_number(given["version"]), int(given["digest"], 16))


def _read_paths(given: Iterable[Iterable[str]]) -> tuple[Path, ...]:
    return tuple(tuple(map(str, path)) for path in given)


def _read_entries(given: Iterable[Mapping[str, Any]], schema: Schema | None) -> tuple[RouteEntry, ...]:
    return tuple(_read_entry(each, schema) for each in given)


def _read_entry(given: Mapping[str, Any], schema: Schema | None) -> RouteEntry:
    number, text = _read_number(given["number"]), given["filter"]
    params, like_star = given.get("params", ()), given.get("like_star", False)
    try:
        found = Filter(text, schema, params, like_star=like_star)
    except FilterError:  # its sender has another schema: this one stays untyped, and no other with it
        found = Filter(text, None, params, like_star=like_star)
    return RouteEntry(number, found, "" if like_star else text)
