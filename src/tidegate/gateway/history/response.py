"""The response with a history: streamed, no faster than its client reads and its quota allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog
from fastapi.responses import StreamingResponse
from starlette.types import Send

from tidegate.errors import EndedSubscription, TidegateError
from tidegate.gateway.auth.view import View
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.history.columns import HistoryColumns
from tidegate.gateway.history.reader import HistorySpan, Slice, SpanReader
from tidegate.gateway.history.writers import writer_of
from tidegate.model import Schema

_log = structlog.get_logger("tidegate.history")


@dataclass(frozen=True, slots=True)
class HistoryResponse:
    """A history for one caller."""

    gateway: Gateway
    view: View
    span: HistorySpan
    schema: Schema
    """The attributes that the caller sees."""
    media_type: str

    async def respond(self) -> StreamingResponse:
        """Read the first slice, whose errors become problem documents, and return the response."""
        columns = HistoryColumns(self.schema, self.span.encoding.select)
        reader = SpanReader(self.gateway.log, self.span, columns, writer_of(self.media_type, columns.arrow))
        self.view.meter.need_deliveries(self.view.caller, 1)
        first = await self._next(reader, patient=False)
        return _Streamed(self._pieces(reader, first), media_type=self.media_type)

    async def _next(self, reader: SpanReader, *, patient: bool = True) -> Slice:
        """Read a slice in its caller's turn. Too many calls of a caller are refused at the first one."""
        return await self.gateway.executors.heavy(self.view.caller, reader.next_slice, patient=patient)

    async def _pieces(self, reader: SpanReader, piece: Slice) -> AsyncIterator[bytes]:
        """Yield the response. Raises TidegateError if it can't be completed."""
        gateway, view, service = self.gateway, self.view, self.span.service
        tally = gateway.metrics.delivered(service, "history")
        pace = view.meter.pace(view.caller)
        while True:
            view.meter.delivered(view.caller, piece.events)
            tally.add(piece.events)
            if piece.data:
                yield piece.data
            if piece.is_last:
                return
            while pace is not None and (wait_s := pace.wait_s()) > 0:
                await asyncio.sleep(min(wait_s, 1.0))
                self._check()
            self._check()
            piece = await self._next(reader)

    def _check(self) -> None:
        void = self.gateway.sweep.void(self.view.caller)
        if void is not None:
            raise EndedSubscription(void)
        if self.gateway.is_draining:
            raise EndedSubscription("the gateway is stopping")


class _Streamed(StreamingResponse):
    """After an error the server closes the connection without the last chunk, so the client notices the truncation."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except TidegateError as error:
            _log.warning("a history is incomplete", reason=str(error))
