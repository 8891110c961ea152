"""The key `webhooks` of a profile: which addresses they may have, and how failed messages are retried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.cli.profile.entries import read_entries
from tidegate.errors import EnvironmentProblem
from tidegate.model import units

_KEYS = ("allow_private", "timeout", "retry")
_RETRY_KEYS = ("first", "max", "attempts")
MIN_DELAY_S = 0.1
"""A shorter delay would overload a receiver that fails."""
MAX_TIMEOUT_S = 300.0
MAX_ATTEMPTS = 1_000


@dataclass(frozen=True)
class WebhookProfile:
    """The settings of webhooks that a profile states. None: the default of `PushSettings` or `WebhookSettings`."""

    allow_private: bool = False
    """True if webhooks may go to addresses that are not public."""
    timeout_s: float | None = None
    """Timeout of a whole request."""
    first_retry_s: float | None = None
    """Delay after the first failure; it doubles with each failure."""
    max_retry_s: float | None = None
    """Maximum delay between two attempts."""
    max_attempts: int | None = None
    """Failures in a row after which a message becomes a dead letter."""


def read_webhooks(document: Any, path: str) -> WebhookProfile:
    """Read `webhooks` of the profile at `path`. Raises an `EnvironmentProblem` that names the key."""
    if document is None:
        return WebhookProfile()
    where = f"{path}: webhooks"
    entries = read_entries(document, _KEYS, where)
    retry = read_entries(entries.get("retry", {}), _RETRY_KEYS, f"{where}.retry")
    allow_private = entries.get("allow_private", False)
    if not isinstance(allow_private, bool):
        raise EnvironmentProblem(f"{where}.allow_private: expected true or false, not {allow_private!r}")
    timeout_s = _seconds(entries, "timeout", f"{where}.timeout")
    if timeout_s is not None and timeout_s > MAX_TIMEOUT_S:
        longest = units.duration_text(MAX_TIMEOUT_S)
        raise EnvironmentProblem(f"{where}.timeout: expected at most {longest}, not {entries['timeout']!r}")
    first_s, max_s = (_seconds(retry, key, f"{where}.retry.{key}") for key in ("first", "max"))
    if first_s is not None and max_s is not None and max_s < first_s:
        raise EnvironmentProblem(f"{where}.retry.max: expected at least first, {retry['first']}, not {retry['max']!r}")
    attempts = retry.get("attempts")
    if attempts is not None and (type(attempts) is not int or not 1 <= attempts <= MAX_ATTEMPTS):
        raise EnvironmentProblem(
            f"{where}.retry.attempts: expected a whole number from 1 to {MAX_ATTEMPTS:,}, not {attempts!r}"
        )
    return WebhookProfile(allow_private, timeout_s, first_s, max_s, attempts)


def _seconds(entries: dict[str, Any], key: str, where: str) -> float | None:
    value = entries.get(key)
    if value is None:
        return None
    duration_s = units.seconds(value) if isinstance(value, str) else None
    if duration_s is None or duration_s < MIN_DELAY_S:
        shortest = units.duration_text(MIN_DELAY_S)
        raise EnvironmentProblem(f"{where}: expected a length of time such as 10s, at least {shortest}, not {value!r}")
    return duration_s
