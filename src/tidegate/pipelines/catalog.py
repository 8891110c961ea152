"""Writes each change of the registry to the stream `_services` once, also across restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import structlog

from tidegate.errors import error_text
from tidegate.logs import EventLog
from tidegate.model import Schema
from tidegate.registry import RegisteredService
from tidegate.services.catalog import STREAM, Event, gone, told
from tidegate.services.redaction import redacted

_log = structlog.get_logger("tidegate.catalog")


class CatalogWriter:
    """Appends an event to `_services` for each service that is added, changed or removed."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._last: dict[str, Event] = {}
        """The last event of each service that exists."""
        log.create(STREAM)
        holds_secret = False
        for record in self._read():
            try:
                event = json.loads(record)
                holds_secret = _holds_secret(event) or holds_secret
                self._remember(event)
            except (ValueError, TypeError, KeyError) as exc:  # written by another version or another program
                _log.warning("a record of _services can't be read", problem=error_text(exc))
        if holds_secret:
            self._rewrite_without_secrets()

    def _read(self) -> list[bytes]:
        records: list[bytes] = []
        cursor = self._log.begin(STREAM)
        while (read := self._log.read(STREAM, cursor, 10_000)).records:
            records += read.records
            cursor = read.cursor
        return records

    def _rewrite_without_secrets(self) -> None:
        """Replace the stream by one without passwords: an older version wrote definitions unredacted."""
        self._last = {name: {**event, "definition": _redacted(event)} for name, event in self._last.items()}
        self._log.delete(STREAM)
        self._log.create(STREAM)
        self._append(list(self._last.values()))
        _log.warning("the stream _services held passwords, and was rewritten without them; change those passwords")

    def _append(self, events: list[Event]) -> None:
        if events:
            self._log.append(STREAM, "0", [json.dumps(event, separators=(",", ":")).encode() for event in events])

    def update(self, services: Mapping[str, RegisteredService], schemas: Mapping[str, Schema]) -> None:
        """Append an event for each service that is new, changed or removed since the last call. Raises LogError."""
        micros = time.time_ns() // 1_000
        events = [gone(last, micros) for name, last in self._last.items() if name not in services]
        for name, registered in services.items():
            last = self._last.get(name)
            if last is None or last.get("version") != registered.version:
                events.append(told(registered.service, registered.version, schemas[name], micros, is_new=last is None))
        self._append(events)
        for event in events:
            self._remember(event)

    def _remember(self, event: Event) -> None:
        if event["change"] == "removed":
            self._last.pop(event["service"], None)
        else:
            self._last[event["service"]] = event


def _redacted(event: Event) -> str:
    return json.dumps(redacted(json.loads(event["definition"])))


def _holds_secret(event: Event) -> bool:
    definition = json.loads(event["definition"])
    return bool(redacted(definition) != definition)
