"""The protocol that the gateway calls, and ingest in the calling process, for tests and single processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self

from tidegate.ingress.http.core import Ingest, IngestRequest
from tidegate.ingress.http.receipt import IngestReceipt, Mode
from tidegate.ingress.http.settings import IngestSettings
from tidegate.logs import EventLog
from tidegate.logs.clock import Clock
from tidegate.services.definitions import Stream


class Ingestor(Protocol):
    """Ingest in this process or in another."""

    def define(self, streams: Mapping[str, Stream]) -> None:
        """Replace the definitions; requests that follow are checked against them."""

    async def ingest(
        self, stream: str, content_type: str | None, headers: Mapping[str, str], body: bytes, mode: Mode = "all"
    ) -> IngestReceipt:
        """Append the events of a body. Events that the receipt counts as accepted are in the log."""

    async def close(self) -> None:
        """Finish the requests that were sent."""


class DirectIngest:
    """Appends before `ingest` returns, one request at a time. The caller closes the log."""

    def __init__(self, log: EventLog, settings: IngestSettings | None = None, clock: Clock | None = None) -> None:
        self._ingest = Ingest(log, settings, clock)

    def define(self, streams: Mapping[str, Stream]) -> None:
        """Replace the definitions."""
        self._ingest.define(streams)

    async def ingest(
        self, stream: str, content_type: str | None, headers: Mapping[str, str], body: bytes, mode: Mode = "all"
    ) -> IngestReceipt:
        """Append the events of a body."""
        (outcome,) = self._ingest.process([IngestRequest(stream, content_type, headers, body, mode)])
        if isinstance(outcome, IngestReceipt):
            return outcome
        raise outcome

    async def close(self) -> None:
        """Do nothing: no request is pending."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
