"""The end cursors of streams, where new services start to read."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidegate.errors import LogError, LogUnreachable, StreamNotFound, error_text
from tidegate.logs.log import EventLog


def ends_of(open_log: Callable[[], EventLog], streams: Collection[str]) -> dict[str, str]:
    """Return the text of each stream's end cursor; streams that are not in the log are left out.

    `open_log` opens the log, which is closed before this returns. Raises LogUnreachable if the log does not answer.
    """
    try:
        log = open_log()
        try:
            known = set(log.streams())
            return {name: end for name in streams if name in known and (end := _end(log, name)) is not None}
        finally:
            log.close()
    except (LogError, OSError) as error:
        raise LogUnreachable(
            f"nothing was applied: new services start at the end of {', '.join(sorted(streams))}, which the log did "
            f"not return ({error_text(error)}); apply it again when the log can be reached"
        ) from error


def _end(log: EventLog, stream: str) -> str | None:
    try:
        return log.end(stream).text
    except StreamNotFound:  # deleted since the list was made
        return None
