"""The notices that subscribers get between two events."""

from __future__ import annotations

from tidegate.delivery.batch import Batch, ahead
from tidegate.delivery.subscriber import DeliveryNotice
from tidegate.filters import Filter
from tidegate.logs import Cursor

LOST_AT_ORIGIN = "lost at the service's origin: older than what it keeps, or its stream was created again"
"""The reason of a gap in the events of another broker's service."""


def gap(batch: Batch) -> DeliveryNotice:
    """Return the notice of the events that are missing before a batch."""
    missed = [
        {"partition": gap.partition, "missed_from": gap.missed_from, "resumed_at": gap.resumed_at} for gap in batch.gaps
    ]
    local = {gap.partition: gap.resumed_at for gap in batch.gaps if not gap.at_origin}
    reason = "older than what the stream keeps" if local else LOST_AT_ORIGIN
    return DeliveryNotice("gap", ahead(batch.start, local).text, {"reason": reason, "missed": missed})


def stream_replaced(cursor: Cursor | None) -> DeliveryNotice:
    """Return the notice for a subscriber whose cursor is not valid in the stream."""
    reason = "the cursor is not valid in this stream, which may have been created again"
    return DeliveryNotice("gap", _text(cursor), {"reason": reason})


def began(cursor: Cursor | None) -> DeliveryNotice:
    """Return the notice for a subscriber that started without a cursor; None: the stream does not exist yet."""
    return DeliveryNotice("began", _text(cursor))


def filter_changed(filter_: Filter | None, cursor: Cursor | None) -> DeliveryNotice:
    """Return the notice that a filter applies from a cursor on."""
    return DeliveryNotice("changed", _text(cursor), {"filter": "" if filter_ is None else str(filter_)})


def ended(cursor: Cursor | None, detail: str) -> DeliveryNotice:
    """Return the notice that delivery has ended at a cursor, with the reason."""
    return DeliveryNotice("error", _text(cursor), {"detail": detail})


def _text(cursor: Cursor | None) -> str:
    return "" if cursor is None else cursor.text
