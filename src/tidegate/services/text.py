"""YAML as plain values, and the place of each.

A subset that surprises less than all of YAML 1.1: `on`, `yes`, `12:30` and
`2010-01-01` are text, keys are always text, a key that occurs twice is a
problem. Anchors, aliases and `<<` work. JSON that is long is read as JSON, a
hundred times faster, without places.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import orjson
import yaml

from tidegate.services.definitions import Path, Place
from tidegate.services.findings import Findings

MAX_VALUES = 100_000
"""How many values a document may have, aliases counted wherever they stand."""
MAX_DEPTH = 100
MAX_TOKENS = 50_000
"""Of a YAML text: some 20 microseconds each. Counted while they are scanned, so that no text takes longer than that."""
MAX_NUMBER_LENGTH = 400
"""Characters of a number: as a text, an integer of more than 4,300 digits can't even be shown."""
LONG_JSON = 32 * 1024
"""Characters from which on JSON is not read as YAML."""

_TAG = "tag:yaml.org,2002:"
_RESOLVED = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", "-+.0123456789"),
    ("merge", r"<<", "<"),
)


class _Loader(yaml.SafeLoader):
    """Composes nodes whose tags are those of YAML 1.2, plus merge keys."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - PyYAML's way
    _count = 0

    def fetch_more_tokens(self) -> None:
        """Scan on, as far as a document may go: scanning what nests deep takes time that grows with its square."""
        scanner: Any = self
        self._count += 1
        if self._count > MAX_TOKENS:
            raise _TooLargeError(f"it has more than {MAX_TOKENS:,} tokens; send what is so long as JSON")
        if scanner.flow_level + len(scanner.indents) > MAX_DEPTH + 1:
            raise _TooLargeError(f"it nests more than {MAX_DEPTH} deep")
        yaml.SafeLoader.fetch_more_tokens(self)

    def scan_plain(self) -> Any:
        """Read plain text as YAML 1.2 does: `{owner: string?}` needs no quotes. Else PyYAML's own method."""
        scanner: Any = self
        chunks: list[str] = []
        spaces: list[str] = []
        start = end = scanner.get_mark()
        indent = scanner.indent + 1
        while scanner.peek() != "#":
            length = 0
            while not _ends_plain(scanner, length):
                length += 1
            if length == 0:
                break
            scanner.allow_simple_key = False
            chunks += [*spaces, scanner.prefix(length)]
            scanner.forward(length)
            end = scanner.get_mark()
            spaces = scanner.scan_plain_spaces(indent, start)
            if not spaces or (not scanner.flow_level and scanner.column < indent):
                break
        return yaml.ScalarToken("".join(chunks), True, start, end)


_BLANKS = "\0 \t\r\n\x85\u2028\u2029"


def _ends_plain(scanner: Any, length: int) -> bool:
    """Whether plain text ends before the character that lies so far ahead."""
    letter, marks = scanner.peek(length), ",[]{}" if scanner.flow_level else ""
    return letter in _BLANKS or letter in marks or (letter == ":" and scanner.peek(length + 1) in _BLANKS + marks)


for _name, _pattern, _first in _RESOLVED:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})\Z"), list(_first))


def read(text: str, file: str, findings: Findings) -> Any:
    """Give the values of a YAML text; problems and places go to `findings`."""
    if len(text) >= LONG_JSON and text.lstrip()[:1] in ("{", "["):
        try:
            return _read_json(text, file, findings)
        except orjson.JSONDecodeError:
            pass  # a flow map of YAML begins so, too
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        return None if root is None else _Values(file, findings).value(root, (), 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        findings.places[()] = Place(file, line)
        hint = "; inside {} and [] quote what has brackets: 'int32[4]'" if "but got '['" in str(error.problem) else ""
        findings.blame((), f"expected YAML: {error.problem or error.context}{hint}")
    except (yaml.YAMLError, RecursionError, _TooLargeError) as error:
        reason = "it nests too deep" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
        findings.places[()] = Place(file, 1)
        findings.blame((), f"expected YAML: {reason}")
    return None


def _read_json(text: str, file: str, findings: Findings) -> Any:
    """Give the values of a JSON text. Raises `orjson.JSONDecodeError` if it is none."""
    orjson.loads(text)  # bounds depth and numbers, which the standard library's reader does not
    twice: list[str] = []

    def paired(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
            twice.append(name)
        return found

    findings.places[()] = Place(file, 1)
    try:
        value = json.loads(text, object_pairs_hook=paired)
        _need_bounded(value)
    except (RecursionError, _TooLargeError) as error:
        reason = f"it nests more than {MAX_DEPTH} deep" if isinstance(error, RecursionError) else str(error)
        findings.blame((), f"expected JSON: {reason}")
        return None
    if twice:
        findings.blame((), f"the key {twice[0][:200]!r} occurs twice")
        return None
    return value


def _need_bounded(value: Any) -> None:
    """Refuse what has too many values, or nests too deep. Needs no stack."""
    count, level = 0, [value]
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        if count > MAX_VALUES:
            raise _TooLargeError(f"it has more than {MAX_VALUES} values")
        level = [inner for each in level if isinstance(each, dict | list) for inner in _inside(each)]
        if not level:
            return
    raise _TooLargeError(f"it nests more than {MAX_DEPTH} deep")


def _inside(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


class _TooLargeError(Exception):
    """A document that is larger than anyone would write."""


class _Values:
    """Turns nodes into values; notes where they stand."""

    def __init__(self, file: str, findings: Findings) -> None:
        self.file, self.findings, self.count = file, findings, 0

    def value(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise _TooLargeError(f"it has more than {MAX_VALUES} values, aliases counted")
        if depth > MAX_DEPTH:
            raise _TooLargeError(f"it nests more than {MAX_DEPTH} deep")
        if not path:
            self.note(path, node)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            found = []
            for n, item in enumerate(node.value):
                self.note((*path, n), item)
                found.append(self.value(item, (*path, n), depth + 1))
            return found
        return self.scalar(node, path)

    def note(self, path: Path, node: yaml.Node) -> None:
        self.findings.places[path] = Place(self.file, node.start_mark.line + 1)

    def mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            if not isinstance(key, yaml.ScalarNode):
                self.findings.blame(path, "expected keys that are text, not maps or lists")
                continue
            name, line = _paired(str(key.value)), key.start_mark.line + 1
            self.note((*path, name), key)
            if name in lines:
                self.findings.blame((*path, name), f"the key {name!r} occurs twice, first in line {lines[name]}")
            lines[name] = line
            found[name] = self.value(value, (*path, name), depth + 1)
        for each in merged:
            self.merge(each, found, path, depth)
        return found

    def merge(self, node: yaml.Node, into: dict[str, Any], path: Path, depth: int) -> None:
        """Add what a map has under `<<`: keys that are there already stay."""
        if not isinstance(node, yaml.MappingNode):
            self.findings.blame(path, "expected << to name a map, such as <<: *defaults")
            return
        self.count += 1  # an empty map costs time, too
        places, self.findings.places = self.findings.places, {}
        try:
            for name, value in self.mapping(node, path, depth + 1).items():
                into.setdefault(name, value)
        finally:
            merged, self.findings.places = self.findings.places, places
        for place, where in merged.items():  # what the map itself says stays
            places.setdefault(place, where)

    def scalar(self, node: yaml.Node, path: Path) -> Any:
        text, tag = str(node.value), node.tag.removeprefix(_TAG)
        if tag in ("int", "float") and len(text) > MAX_NUMBER_LENGTH:
            self.findings.blame(path, f"expected a number of at most {MAX_NUMBER_LENGTH} characters, not {len(text):,}")
            return None
        try:
            match tag:
                case "str" | "!":
                    return _paired(text)
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
                case "float":
                    return float(text.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            self.findings.blame(path, f"expected a value of type {tag}, not {text[:60]!r}")
            return None
        self.findings.blame(path, f"expected a plain value, not one tagged {node.tag!r}")
        return None


def _paired(text: str) -> str:
    """Make one character of two surrogates: JSON writes some so, and JSON is YAML."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
