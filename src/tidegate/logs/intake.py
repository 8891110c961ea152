"""Deprecated names of `raw_streams`, for callers that still use them."""

from tidegate.logs.raw_streams import Input, quarantine_of, stamp
from tidegate.logs.raw_streams import RawStreamWriter as Intake
from tidegate.logs.raw_streams import with_metadata as dressed

__all__ = ["Input", "Intake", "dressed", "quarantine_of", "stamp"]
