"""Event logs: append records to streams, read them from a cursor, keep them for a time.

A record is one JSON object, as bytes. `factory` opens the backend that a profile names: segment files or Kafka. Every
backend passes the contract in `tests/logs/contract.py`.
`ingress.raw_streams` writes raw streams. Nothing here knows Spark or HTTP.
"""

from tidegate.logs.cursor import Cursor, Mark
from tidegate.logs.ends import ends_of
from tidegate.logs.factory import FileLogSettings, KafkaLogSettings, LogSettings, open_log
from tidegate.logs.kafka import KafkaLog
from tidegate.logs.log import EventLog, Gap, Read, RetentionLimits, tail
from tidegate.logs.segments import FSYNC, SegmentLog

__all__ = [
    "FSYNC",
    "Cursor",
    "EventLog",
    "FileLogSettings",
    "Gap",
    "KafkaLog",
    "KafkaLogSettings",
    "LogSettings",
    "Mark",
    "Read",
    "RetentionLimits",
    "SegmentLog",
    "ends_of",
    "open_log",
    "tail",
]
