"""The JSON document of an API key, for the API and the command line."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidegate.registry import Key


def described(key: Key, now: datetime, use: tuple[datetime, str] | None = None) -> dict[str, Any]:
    """Return the document of a key, without its secret. `use` is a last use that is not stored in the key yet."""
    used_at, used_from = (key.last_used_at, key.last_used_from) if use is None else use
    is_in_overlap = key.previous_until is not None and now < key.previous_until
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "services": None if key.services is None else list(key.services),
        "quotas": dict(key.quotas),
        "prefix": key.prefix,
        "created_at": key.created_at.isoformat(),
        "expires_at": _text(key.expires_at),
        "revoked_at": _text(key.revoked_at),
        "previous_until": _text(key.previous_until) if is_in_overlap else None,
        "last_used_at": _text(used_at),
        "last_used_from": used_from,
        "state": "revoked" if key.revoked_at is not None else "good" if key.problem(now) is None else "expired",
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
