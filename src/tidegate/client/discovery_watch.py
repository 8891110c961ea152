"""The protocol of a watched discovery request across reconnects, without I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tidegate.client.errors import Refused, Unavailable, Unreachable
from tidegate.client.reconnect import Reconnect
from tidegate.client.sse import SseParser
from tidegate.errors import ClientError


class DiscoveryWatch:
    """Parses the answers of a watched request and decides whether and when to reconnect."""

    def __init__(self, reconnect: Reconnect, random: Callable[[], float]) -> None:
        """`random` returns numbers between 0 and 1."""
        self._reconnect, self._random = reconnect, random
        self._parser, self._failures, self._has_answer = SseParser(), 0, False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the answers and changes that these bytes complete. Raises Refused if the gateway sends an error."""
        for message in self._parser.feed(data):
            if message.data is None:
                continue
            if message.name == "error":
                raise Refused(json.loads(message.data)["detail"], 401)
            self._failures, self._has_answer = 0, True
            yield {"kind": message.name, **json.loads(message.data)}

    def connection_failed(self, error: Exception) -> None:
        """Count a failure. Raises the error if a retry would not help, or if no answer has ever come."""
        is_temporary = not isinstance(error, ClientError) or isinstance(error, Unavailable | Unreachable)
        if not (is_temporary and self._has_answer):
            raise error
        self._failures += 1

    def next_backoff_s(self) -> float:
        """Return the backoff before the next connection, and prepare for it: its stream starts with a whole answer."""
        self._parser = SseParser()
        return self._reconnect.backoff_s(self._reconnect.first_s, self._failures, self._random())
