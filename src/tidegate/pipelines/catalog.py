"""Keeps `_services` true: each change of the registry once, also over restarts."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping

from tidegate.errors import error_text
from tidegate.logs import EventLog
from tidegate.model import Schema
from tidegate.registry import RegisteredService
from tidegate.services.catalog import STREAM, Event, gone, told

_logger = logging.getLogger(__name__)


class Catalog:
    """What was told of services, and what is to be told."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._last: dict[str, Event] = {}
        """What was told last of each service that is there."""
        log.create(STREAM)
        cursor = log.begin(STREAM)
        while (read := log.read(STREAM, cursor, 10_000)).records:
            for record in read.records:
                try:
                    self._note(json.loads(record))
                except (ValueError, TypeError, KeyError) as problem:  # another version's, or somebody's own
                    _logger.warning("a record of %s can't be read: %s", STREAM, error_text(problem))
            cursor = read.cursor

    def tell(self, services: Mapping[str, RegisteredService], schemas: Mapping[str, Schema]) -> None:
        """Tell of all that is new, other, or gone."""
        micros = time.time_ns() // 1_000
        events = [gone(last, micros) for name, last in self._last.items() if name not in services]
        for name, each in services.items():
            last = self._last.get(name)
            if last is None or last.get("version") != each.version:
                events.append(told(each.service, each.version, schemas[name], micros, is_new=last is None))
        if events:
            self._log.append(STREAM, "0", [json.dumps(each, separators=(",", ":")).encode() for each in events])
        for event in events:
            self._note(event)

    def _note(self, event: Event) -> None:
        if event["change"] == "removed":
            self._last.pop(event["service"], None)
        else:
            self._last[event["service"]] = event
