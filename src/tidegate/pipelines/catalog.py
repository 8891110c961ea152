"""Keeps `_services` true: each change of the registry once, also over restarts."""

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


class Catalog:
    """What was told of services, and what is to be told."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._last: dict[str, Event] = {}
        """What was told last of each service that is there."""
        log.create(STREAM)
        holds_secret = False
        for record in self._read():
            try:
                event = json.loads(record)
                holds_secret = _holds_secret(event) or holds_secret
                self._note(event)
            except (ValueError, TypeError, KeyError) as problem:  # another version's, or somebody's own
                _log.warning("a record of _services can't be read", problem=error_text(problem))
        if holds_secret:
            self._write_anew()

    def _read(self) -> list[bytes]:
        records: list[bytes] = []
        cursor = self._log.begin(STREAM)
        while (read := self._log.read(STREAM, cursor, 10_000)).records:
            records += read.records
            cursor = read.cursor
        return records

    def _write_anew(self) -> None:
        """Begin the stream again without passwords: an older version wrote definitions as they were."""
        self._last = {name: {**each, "definition": _redacted(each)} for name, each in self._last.items()}
        self._log.delete(STREAM)
        self._log.create(STREAM)
        self._append(list(self._last.values()))
        _log.warning("the stream _services held passwords, and was written anew without them; change those passwords")

    def _append(self, events: list[Event]) -> None:
        if events:
            self._log.append(STREAM, "0", [json.dumps(each, separators=(",", ":")).encode() for each in events])

    def tell(self, services: Mapping[str, RegisteredService], schemas: Mapping[str, Schema]) -> None:
        """Tell of all that is new, other, or gone."""
        micros = time.time_ns() // 1_000
        events = [gone(last, micros) for name, last in self._last.items() if name not in services]
        for name, each in services.items():
            last = self._last.get(name)
            if last is None or last.get("version") != each.version:
                events.append(told(each.service, each.version, schemas[name], micros, is_new=last is None))
        self._append(events)
        for event in events:
            self._note(event)

    def _note(self, event: Event) -> None:
        if event["change"] == "removed":
            self._last.pop(event["service"], None)
        else:
            self._last[event["service"]] = event


def _redacted(event: Event) -> str:
    return json.dumps(redacted(json.loads(event["definition"])))


def _holds_secret(event: Event) -> bool:
    definition = json.loads(event["definition"])
    return bool(redacted(definition) != definition)
