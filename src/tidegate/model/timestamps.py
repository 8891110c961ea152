"""Times as microseconds since 1970 UTC, and as RFC 3339 text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - _EPOCH) // _MICROSECOND


def from_text(text: str) -> int | None:
    """Read an ISO 8601 date or time; without a zone it is UTC. Returns None for any other text.

    Digits beyond the microsecond are cut off. Years are 1 to 9999, in UTC.

    >>> from_text("1970-01-01T00:00:01.5Z")
    1500000
    >>> from_text("1970-01-02")
    86400000000
    >>> from_text("soon") is None
    True
    """
    try:
        micros = from_datetime(datetime.fromisoformat(text.strip().upper()))
    except (ValueError, OverflowError):
        return None
    return micros if is_writable(micros) else None


def is_writable(micros: int) -> bool:
    """Return True if a time lies in the years that RFC 3339 can write."""
    return _FIRST <= micros <= _LAST


def from_datetime(moment: datetime) -> int:
    """Return the microseconds since 1970 UTC of a time; without a zone it is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def to_datetime(micros: int) -> datetime:
    """Return a time as an aware `datetime`. Raises `OverflowError` outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=micros)


def to_text(micros: int) -> str:
    """Return a time as RFC 3339 UTC text with microseconds, the form on the wire.

    >>> to_text(1500000)
    '1970-01-01T00:00:01.500000Z'
    """
    return to_datetime(micros).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
