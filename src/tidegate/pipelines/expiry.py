"""Deletes records that are older or more than the retention of their stream allows."""

from __future__ import annotations

from functools import partial

from tidegate.logs import EventLog, RetentionLimits
from tidegate.pipelines.guard import Guard
from tidegate.services import audit_stream, catalog
from tidegate.services.definitions import Definitions

DEFAULT_RETENTION = RetentionLimits(age_s=24 * 3600.0)
"""Of streams that no definition names, such as `_status`."""

_NOT_EXPIRED = (catalog.STREAM, audit_stream.STREAM)
"""The catalog describes services that still exist, and the gateway shortens its audit log itself."""


def expire_streams(
    log: EventLog, definitions: Definitions, guard: Guard, default: RetentionLimits = DEFAULT_RETENTION
) -> None:
    """Apply the retention of each stream, `default` to those without a definition. Logs errors of single streams."""
    retentions = {stream.name: stream.retention for stream in definitions.streams.values()}
    for service in definitions.services.values():
        for name in (service.name, service.quarantine, service.replays):
            retentions[name] = service.retention
    for name in log.streams():
        if name in _NOT_EXPIRED:
            continue
        retention = retentions.get(name)
        limits = RetentionLimits(retention.age_s, retention.size_bytes) if retention else default
        guard.run(f"stream {name!r} can't be expired", partial(_expire, log, name, limits))


def _expire(log: EventLog, name: str, limits: RetentionLimits) -> None:
    log.expire(name, limits)
