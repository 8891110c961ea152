"""Reads YAML and JSON texts into plain values, with the line of each value.

The YAML subset has fewer surprises than YAML 1.1: `on`, `yes`, `12:30` and `2010-01-01` are text, keys are always text,
and a duplicate key is an error. Anchors, aliases and `<<` work. A long JSON text is read by a JSON parser, which is a
hundred times faster, but gives no line numbers.
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
"""The largest number of values in a document; each use of an alias counts."""
MAX_DEPTH = 100
MAX_TOKENS = 50_000
"""The largest number of YAML tokens, some 20 microseconds each. Counted during the scan, which bounds its time."""
MAX_NUMBER_LENGTH = 400
"""The longest number, in characters: Python refuses to print an integer of more than 4,300 digits."""
MIN_JSON_LENGTH = 32 * 1024
"""The length, in characters, from which a JSON text is read by a JSON parser instead of as YAML."""

_TAG = "tag:yaml.org,2002:"
_RESOLVED = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", "-+.0123456789"),
    ("merge", r"<<", "<"),
)


class _Loader(yaml.SafeLoader):
    """Composes nodes with the tags of YAML 1.2, plus merge keys."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - as PyYAML declares it
    _count = 0

    def fetch_more_tokens(self) -> None:
        """Scan more tokens, within the limits: the time for nested collections grows with the square of the depth."""
        scanner: Any = self
        self._count += 1
        if self._count > MAX_TOKENS:
            raise _TooLargeError(f"it has more than {MAX_TOKENS:,} tokens; send a document of this length as JSON")
        if scanner.flow_level + len(scanner.indents) > MAX_DEPTH + 1:
            raise _TooLargeError(f"it nests more than {MAX_DEPTH} deep")
        yaml.SafeLoader.fetch_more_tokens(self)

    def scan_plain(self) -> Any:
        """Scan a plain scalar as in YAML 1.2: `{owner: string?}` needs no quotes. Otherwise as PyYAML does it."""
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
    """Return True if a plain scalar ends before the character at `length`."""
    letter, marks = scanner.peek(length), ",[]{}" if scanner.flow_level else ""
    return letter in _BLANKS or letter in marks or (letter == ":" and scanner.peek(length + 1) in _BLANKS + marks)


for _name, _pattern, _first in _RESOLVED:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})\Z"), list(_first))


def read(text: str, file: str, findings: Findings) -> Any:
    """Return the values of a YAML or JSON text; None if it can't be parsed. Adds problems and places to `findings`."""
    if len(text) >= MIN_JSON_LENGTH and text.lstrip()[:1] in ("{", "["):
        try:
            return _read_json(text, file, findings)
        except orjson.JSONDecodeError:
            pass  # it may be YAML: a flow map also starts with a brace
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
        findings.report((), f"expected YAML: {error.problem or error.context}{hint}")
    except (yaml.YAMLError, RecursionError, _TooLargeError) as error:
        reason = "it nests too deep" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
        findings.places[()] = Place(file, 1)
        findings.report((), f"expected YAML: {reason}")
    return None


def _read_json(text: str, file: str, findings: Findings) -> Any:
    """Return the values of a JSON text. Raises `orjson.JSONDecodeError` if it is not JSON."""
    orjson.loads(text)  # limits depth and numbers, which the standard library does not
    duplicates: list[str] = []

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
            duplicates.append(name)
        return values

    findings.places[()] = Place(file, 1)
    try:
        value = json.loads(text, object_pairs_hook=to_dict)
        _need_bounded(value)
    except (RecursionError, _TooLargeError) as error:
        reason = f"it nests more than {MAX_DEPTH} deep" if isinstance(error, RecursionError) else str(error)
        findings.report((), f"expected JSON: {reason}")
        return None
    if duplicates:
        findings.report((), f"the key {duplicates[0][:200]!r} occurs twice")
        return None
    return value


def _need_bounded(value: Any) -> None:
    """Raise `_TooLargeError` for too many values or too deep nesting. Not recursive, so it needs no stack."""
    count, level = 0, [value]
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        if count > MAX_VALUES:
            raise _TooLargeError(f"it has more than {MAX_VALUES} values")
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _inside(outer)]
        if not level:
            return
    raise _TooLargeError(f"it nests more than {MAX_DEPTH} deep")


def _inside(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


class _TooLargeError(Exception):
    """A document exceeds a limit."""


class _Values:
    """Converts YAML nodes into values, and records their lines."""

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
            items = []
            for n, item in enumerate(node.value):
                self.note((*path, n), item)
                items.append(self.value(item, (*path, n), depth + 1))
            return items
        return self.scalar(node, path)

    def note(self, path: Path, node: yaml.Node) -> None:
        self.findings.places[path] = Place(self.file, node.start_mark.line + 1)

    def mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            if not isinstance(key, yaml.ScalarNode):
                self.findings.report(path, "expected keys that are text, not maps or lists")
                continue
            name, line = _join_surrogates(str(key.value)), key.start_mark.line + 1
            self.note((*path, name), key)
            if name in lines:
                self.findings.report((*path, name), f"the key {name!r} occurs twice, first in line {lines[name]}")
            lines[name] = line
            values[name] = self.value(value, (*path, name), depth + 1)
        for source in merged:
            self.merge(source, values, path, depth)
        return values

    def merge(self, node: yaml.Node, into: dict[str, Any], path: Path, depth: int) -> None:
        """Add the entries of a map that `<<` names. Existing keys stay."""
        if not isinstance(node, yaml.MappingNode):
            self.findings.report(path, "expected << to name a map, such as <<: *defaults")
            return
        self.count += 1  # an empty map also costs time
        places, self.findings.places = self.findings.places, {}
        try:
            for name, value in self.mapping(node, path, depth + 1).items():
                into.setdefault(name, value)
        finally:
            merged, self.findings.places = self.findings.places, places
        for place, where in merged.items():  # places of existing keys stay
            places.setdefault(place, where)

    def scalar(self, node: yaml.Node, path: Path) -> Any:
        text, tag = str(node.value), node.tag.removeprefix(_TAG)
        if tag in ("int", "float") and len(text) > MAX_NUMBER_LENGTH:
            self.findings.report(
                path, f"expected a number of at most {MAX_NUMBER_LENGTH} characters, not {len(text):,}"
            )
            return None
        try:
            match tag:
                case "str" | "!":
                    return _join_surrogates(text)
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
                case "float":
                    return float(text.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            self.findings.report(path, f"expected a value of type {tag}, not {text[:60]!r}")
            return None
        self.findings.report(path, f"expected a plain value, not one tagged {node.tag!r}")
        return None


def _join_surrogates(text: str) -> str:
    """Replace surrogate pairs by characters: JSON writes some characters as pairs, and JSON is YAML."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
