"""Sends a subscriber the events that the log does not have, page by page."""

from __future__ import annotations

import asyncio
from typing import Any

from tidegate.delivery.history import HistoryProvider, HistoryReader
from tidegate.delivery.latest import Piece
from tidegate.delivery.subscriber import LaneMembership, Subscriber
from tidegate.errors import TidegateError

RETRY_INTERVAL_S = 0.2
"""Between two attempts to get a page from a broker that does not answer."""


class HistorySender:
    """The work of the state HISTORY. Runs on the event loop; matching and rendering run on a thread."""

    def __init__(self, provider: HistoryProvider) -> None:
        self._provider = provider

    async def send_all(self, membership: LaneMembership) -> bool:
        """Send all pages, and set the subscriber's cursor to where the log continues.

        Returns False, and stops, as soon as the membership is void. Waits for as long as the other broker does not
        answer.
        """
        while True:
            await membership.subscriber.sink.drain()
            if not membership.is_current:
                return False
            try:
                reader = self._reader(membership.subscriber)
                page = await reader.next_page()
                rendered = None if page is None else await asyncio.to_thread(membership.render, page)
            except TidegateError:
                await asyncio.sleep(RETRY_INTERVAL_S)
                continue
            if membership.subscriber.membership is not membership:
                return False
            if page is None:
                _finish(membership.subscriber, reader)
                return True
            _write(membership.subscriber, reader, page, rendered)

    async def send_page(self, subscriber: Subscriber) -> bool:
        """Send one page to a subscriber that polls. Returns False if the other broker does not answer now."""
        reader = self._reader(subscriber)
        try:
            page = await reader.next_page()
        except TidegateError:
            return False
        if page is None:
            _finish(subscriber, reader)
        else:
            rendered = await asyncio.to_thread(LaneMembership(subscriber).render, page)
            _write(subscriber, reader, page, rendered)
        return True

    def _reader(self, subscriber: Subscriber) -> HistoryReader:
        if subscriber.history is None:
            subscriber.history = self._provider.open(subscriber)
        return subscriber.history


def _finish(subscriber: Subscriber, reader: HistoryReader) -> None:
    subscriber.cursor, subscriber.history = reader.log_cursor, None


def _write(subscriber: Subscriber, reader: HistoryReader, page: Piece, rendered: Any) -> None:
    """Write a page to the sink, and move the cursor behind the events that the sink took."""
    sink = subscriber.sink
    if page.missed is not None:
        sink.send_notice(subscriber, page.missed)
    sink.first_unsent = None
    if rendered is not None:
        sink.write(rendered)
    subscriber.cursor = reader.advance(len(page) if sink.first_unsent is None else sink.first_unsent)
