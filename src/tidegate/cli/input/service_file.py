"""Writes a commented service file for an inferred stream. For `tidegate init`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tidegate.services.sample import Inferred
from tidegate.services.sources.event_format import OTHERS

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
MAX_STREAM_NAME = 50
"""Leaves room for the endings of services."""


def stream_name(text: str) -> str:
    """Return a valid stream name that is like a text: of a file, or a topic with wildcards."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-._")[:MAX_STREAM_NAME].strip("-._")
    return (name or "events").removesuffix(".quarantine")


def written(
    stream: str, source: Mapping[str, Mapping[str, Any]], inferred: Inferred, *, command: str, refused: int
) -> str:
    """Return the service file, which passes `tidegate validate`."""
    lines = [
        *_comment(f"Written by: {command}", f"From {inferred.events:,} events. The types are guesses: check them."),
        *(_comment(f"{refused:,} records could not be read; they will be in {stream}.quarantine.") if refused else ()),
        *_comment("Every key: docs/spec/services.md. Run it: tidegate up FILE"),
        "",
        "streams:",
        f"  {_name(stream)}:",
        f"    source: {_flow(_source_with_times(source, inferred))}",
        "    schema:  # a ? after a type: the attribute may be missing",
        *_schema_lines(inferred),
    ]
    if inferred.event_time is not None:
        lines.append(f"    event_time: {_name(inferred.event_time)}  # windows use it")
    else:
        lines.append("    # event_time: no attribute looks like a time; windows use the time of arrival")
    if inferred.key is not None:
        lines.append(f"    key: {_name(inferred.key)}  # events with the same {_one_line(inferred.key)} stay in order")
    else:
        lines.append("    # key: no attribute looks like an id whose events must stay in order")
    lines += ["", "services:", *_service_lines(stream, inferred)]
    return "\n".join(lines) + "\n"


def _comment(*texts: str) -> list[str]:
    return [f"# {_one_line(text)}" for text in texts]


def _one_line(text: str) -> str:
    """Return a text without characters that would end a YAML comment or can't be in one."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _source_with_times(source: Mapping[str, Mapping[str, Any]], inferred: Inferred) -> dict[str, Any]:
    (kind, settings), *_ = source.items()
    timestamps = [found.name for found in inferred.attributes if found.type in ("timestamp", "timestamp?")]
    if not inferred.times:
        return {kind: dict(settings)}
    formats = set(inferred.times.values())
    is_same = len(formats) == 1 and set(timestamps) == set(inferred.times)
    return {kind: {**settings, "times": formats.pop() if is_same else dict(inferred.times)}}


def _schema_lines(inferred: Inferred) -> list[str]:
    lines = []
    for attribute in inferred.attributes:
        note = f"  # {_one_line(attribute.note)}" if attribute.note else ""
        time_format = inferred.times.get(attribute.name)
        note += f", read as {_one_line(time_format)}" if time_format else ""
        lines.append(f"      {_name(attribute.name)}: {_flow(attribute.type)}{note}")
    for name in inferred.reserved:
        lines.append(f"      # {_one_line(name)}: left out, since names with _ are reserved")
    return lines


def _service_lines(stream: str, inferred: Inferred) -> list[str]:
    lines = [
        f"  {_name(stream + '-all')}:  # every event that fits the schema",
        f"    from: {_name(stream)}",
        "    # pipeline:",
        '    #   - filter: "…"         # keep the events that match',
        "    # constraints:            # events outside go to the quarantine",
    ]
    if inferred.number is not None:
        lines.append(f'    #   {_name(inferred.number)}: ">= 0"')
    lines.append("    # mask: {…: hmac}       # hide identities")
    if inferred.event_time is None:
        return lines
    by = f"by: [{_name(inferred.key)}], " if inferred.key is not None else ""
    average = f"avg: {{{_name(inferred.number)}: mean}}, " if inferred.number is not None else ""
    thing = f"each {_one_line(inferred.key)} and minute" if inferred.key is not None else "each minute"
    return [
        *lines,
        "",
        f"  {_name(stream + '-per-minute')}:  # one event for {thing}",
        f"    from: {_name(stream)}",
        "    pipeline:",
        f"      - aggregate: {{count: events, {average}{by}window: {{length: 60s}}}}",
    ]


def _name(text: str) -> str:
    """Return a name as YAML."""
    if _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS:
        return text
    return json.dumps(text, ensure_ascii=True)


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{_name(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_flow, value)) + "]"
        case str() if _PLAIN.fullmatch(value.removesuffix("?").removesuffix("[]")) and value != OTHERS:
            return value if value == value.removesuffix("?").removesuffix("[]") else json.dumps(value)
        case _:
            return json.dumps(value, ensure_ascii=True)
