"""Reads the files that commands are given: schemas and events, JSON or YAML."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tidegate.errors import EventError, SchemaError, Violation
from tidegate.model.schema import Schema


def read_schema(path: str) -> Schema:
    """Read a schema: a map of attributes, a JSON Schema, or `{schema: ..., constraints: ..., terms: ...}`."""
    document = _read(path)
    if not isinstance(document, Mapping):
        raise SchemaError(f"expected a map of attributes, not {type(document).__name__}", path)
    try:
        if "$schema" in document or ("properties" in document and document.get("type") == "object"):
            return Schema.from_json_schema(document)
        if isinstance(document.get("schema"), Mapping):
            extras = {key: document[key] for key in ("constraints", "terms", "event_time") if key in document}
            return Schema(document["schema"], **extras)
        return Schema(document)
    except SchemaError as error:
        raise SchemaError(error.message, f"{path}: {error.path}" if error.path else path) from error


def read_event(path: str) -> dict[str, Any]:
    """Read one event, a JSON object, from a file or `-` for standard input."""
    document = _read(path)
    if not isinstance(document, dict):
        raise EventError([Violation(path, f"expected an event (an object), not {type(document).__name__}")])
    return document


def _read(path: str) -> Any:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SchemaError(f"can't read it: {reason}", path) from error
    try:
        return json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        raise SchemaError(f"expected JSON or YAML: {error}", path) from error
