"""Ingest in the process that asks: for tests, and where there is but one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self

from tidegate.gateway.ingest.core import Ingest, Request
from tidegate.gateway.ingest.receipt import Mode, Receipt
from tidegate.gateway.ingest.settings import IngestSettings
from tidegate.logs import EventLog
from tidegate.logs.clock import Clock
from tidegate.services.definitions import Stream


class Ingesting(Protocol):
    """What the gateway needs of ingest, wherever it runs."""

    def define(self, streams: Mapping[str, Stream]) -> None:
        """Take events for just these streams, from now on."""

    async def ingest(
        self, stream: str, content_type: str | None, headers: Mapping[str, str], body: bytes, mode: Mode = "all"
    ) -> Receipt:
        """Append the events of a body; what the receipt counts as accepted is in the log."""

    async def close(self) -> None:
        """Finish what was sent."""


class DirectIngest:
    """Appends before it answers, one request after the other; the log stays the caller's."""

    def __init__(self, log: EventLog, settings: IngestSettings | None = None, clock: Clock | None = None) -> None:
        self._ingest = Ingest(log, settings, clock)

    def define(self, streams: Mapping[str, Stream]) -> None:
        """Take events for just these streams."""
        self._ingest.define(streams)

    async def ingest(
        self, stream: str, content_type: str | None, headers: Mapping[str, str], body: bytes, mode: Mode = "all"
    ) -> Receipt:
        """Append the events of a body."""
        (outcome,) = self._ingest.take([Request(stream, content_type, headers, body, mode)])
        if isinstance(outcome, Receipt):
            return outcome
        raise outcome

    async def close(self) -> None:
        """Nothing is under way."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
