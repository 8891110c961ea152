"""Reads the schema and event files that commands take: JSON or YAML."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tidegate.errors import EventError, SchemaError, Violation, did_you_mean
from tidegate.model.schema import Schema

_PARTS = {"schema", "constraints", "terms", "event_time"}


def read_schema(path: str) -> Schema:
    """Read a schema: a map of attributes, a JSON Schema, or `{schema: ..., constraints: ..., terms: ...}`.

    Raises a `SchemaError` that names the file.
    """
    text = _read(path)
    try:
        document = json.loads(text)
    except ValueError:
        document = _yaml(text, path)
    if not isinstance(document, Mapping):
        raise SchemaError(f"expected a map of attributes, not {type(document).__name__}", path)
    try:
        if "$schema" in document or ("properties" in document and document.get("type") == "object"):
            return Schema.from_json_schema(document)
        if isinstance(document.get("schema"), Mapping):
            return _with_parts(document)
        return Schema(document)
    except SchemaError as error:
        raise SchemaError(error.message, f"{path}: {error.path}" if error.path else path) from error


def _with_parts(document: Mapping[str, Any]) -> Schema:
    for key in document:
        if key not in _PARTS:
            raise SchemaError(f"unknown key{did_you_mean(str(key), _PARTS)}", str(key))
    return Schema(document["schema"], **{key: document[key] for key in _PARTS - {"schema"} if key in document})


def read_event(path: str) -> dict[str, Any]:
    """Read one event, a JSON object, from a file, or from standard input for `-`. Raises an `EventError`."""
    try:
        document = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise EventError([Violation(path, f"expected an event in JSON: {error}")]) from error
    if not isinstance(document, dict):
        raise EventError([Violation(path, f"expected an event (an object), not {type(document).__name__}")])
    return document


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SchemaError(f"can't read it: {reason}", path) from error


def _yaml(text: str, path: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SchemaError(f"expected JSON or YAML: {error}", path) from error
