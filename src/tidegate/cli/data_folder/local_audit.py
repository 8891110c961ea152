"""Audit records of commands that change the registry directly, without a gateway."""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.cli.output.logging import logger
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.cli.data_folder.home import Home

ADDRESS = "local"
"""The address in a record of a command, which has no network address."""


def record(home: Home, action: str, target: str | None = None, detail: str | None = None) -> None:
    """Write one record to the audit log, after the change itself.

    Never raises: if the log can't be written, a warning is logged.
    """
    from tidegate.gateway.audit.log import MAX_DETAIL, AuditEntry, AuditWriter, clean

    user = _user()
    cleaned = clean(detail, MAX_DETAIL)
    entry = AuditEntry(action, "ok", f"os:{user}", user, "operator", ADDRESS, clean(target), cleaned)
    try:
        log = home.log()
        writer = AuditWriter(log, "command", home.audit_locks)
        try:
            writer.append("changes", [(time.time_ns() // 1_000, 1, entry)])
        finally:
            writer.close()
            log.close()
    except (TidegateError, OSError) as problem:
        logger("tidegate.audit").warning("can't write the audit log", action=action, problem=str(problem))


def record_changes(home: Home, changes: Mapping[str, Mapping[str, int]]) -> None:
    """Write a record of applied definitions; no record if none has changed."""
    parts = [
        f"{word} {', '.join(f'{name} v{version}' for name, version in changes[word].items())}"
        for word in ("added", "changed", "removed")
        if changes[word]
    ]
    if parts:
        record(home, "definitions.apply", None, "; ".join(parts))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        return "unknown"
