"""Where streams live: append, read from a cursor, keep for a while.

Knows records as bytes, one JSON object each; nothing of Spark or HTTP. Every log
passes one contract. `intake` is the door of raw streams: it makes records of what comes.
"""

from tidegate.logs.cursor import Cursor, Mark
from tidegate.logs.ends import ends_of
from tidegate.logs.kafka import KafkaLog
from tidegate.logs.log import EventLog, Gap, Read, Retention, tail
from tidegate.logs.segments import FSYNC, SegmentLog

__all__ = [
    "FSYNC",
    "Cursor",
    "EventLog",
    "Gap",
    "KafkaLog",
    "Mark",
    "Read",
    "Retention",
    "SegmentLog",
    "ends_of",
    "tail",
]
