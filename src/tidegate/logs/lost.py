"""Deprecated names of `gap_records`, for callers that still use them."""

from tidegate.logs.gap_records import MAX_OFFSET as MOST_OFFSET
from tidegate.logs.gap_records import SYNC_RECORD as JOINT
from tidegate.logs.gap_records import GapRecord as Lost
from tidegate.logs.gap_records import is_control_record as is_note
from tidegate.logs.gap_records import is_gap_record as is_gap
from tidegate.logs.gap_records import parse_gap_record as read_note
from tidegate.logs.gap_records import with_gaps as told

__all__ = ["JOINT", "MOST_OFFSET", "Lost", "is_gap", "is_note", "read_note", "told"]
