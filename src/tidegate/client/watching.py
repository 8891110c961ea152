"""A request for services that goes on, from connection to connection, without I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tidegate.client.course import Reconnect
from tidegate.client.errors import Refused, Unavailable, Unreachable
from tidegate.client.sse import Parser
from tidegate.errors import ClientError
from tidegate.timing import Backoff


class Watching:
    """What a gateway says of services, and how long to wait for it when it is gone."""

    def __init__(self, reconnect: Reconnect, chance: Callable[[], float]) -> None:
        self._reconnect, self._chance = reconnect, chance
        self._parser, self._failures, self._has_begun = Parser(), 0, False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """What some bytes say."""
        for block in self._parser.feed(data):
            if block.data is None:
                continue
            if block.name == "error":
                raise Refused(json.loads(block.data)["detail"], 401)
            self._failures, self._has_begun = 0, True
            yield {"kind": block.name, **json.loads(block.data)}

    def failed(self, error: Exception) -> None:
        """Raise what won't become better by itself, or was never good."""
        is_passing = not isinstance(error, ClientError) or isinstance(error, Unavailable | Unreachable)
        if not (is_passing and self._has_begun):
            raise error
        self._failures += 1

    def pause_s(self) -> float:
        """How long to wait before the next connection, which begins anew."""
        self._parser = Parser()
        backoff = Backoff(self._reconnect.first_s, self._reconnect.most_s)
        return backoff.delay_s(self._failures + 1, self._chance)
