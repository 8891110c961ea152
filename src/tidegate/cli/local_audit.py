"""Audit records of commands that write to the registry themselves, without a gateway."""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.cli.logging import logger
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.cli.home import Home

ADDRESS = "local"
"""The address of a record that no request has led to."""


def record(home: Home, action: str, target: str | None = None, detail: str | None = None) -> None:
    """Write one record to the audit log. The change is made by now: a log that can't be written is only told of."""
    from tidegate.gateway.audit.log import MAX_DETAIL, AuditEntry, AuditWriter, clean

    user = _user()
    shown = clean(detail, MAX_DETAIL)
    entry = AuditEntry(action, "ok", f"os:{user}", user, "operator", ADDRESS, clean(target), shown)
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
    """Write a record of definitions that were applied; nothing where none has changed."""
    words = [
        f"{word} {', '.join(f'{name} v{version}' for name, version in changes[word].items())}"
        for word in ("added", "changed", "removed")
        if changes[word]
    ]
    if words:
        record(home, "definitions.apply", None, "; ".join(words))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        return "unknown"
