"""Test doubles for code that uses Tidegate: a manual clock, a log in memory, a recording sink.

They have the same contracts as the real ones: the log passes the tests that the logs of files and Kafka pass. Nothing
here starts a process, opens a socket or sleeps.

>>> import asyncio
>>> from tidegate import Filter, Schema
>>> from tidegate.delivery.hub import Hub
>>> from tidegate.testing import MemoryLog, RecordingSink
>>> async def first_fast() -> str:
...     log, sink, schema = MemoryLog(), RecordingSink(), Schema({"vid": "string", "speed": "float64"})
...     log.publish("gps", {"_id": "a", "vid": "B1", "speed": 12.0}, {"_id": "b", "vid": "B2", "speed": 93.5})
...     hub = Hub(log)
...     hub.serve({"gps": schema})
...     hub.subscribe(sink.subscriber("gps", Filter("speed > 60", schema), log.begin("gps")))
...     (event,) = await sink.wait_for(1)
...     await hub.close()
...     return event.data["vid"]
>>> asyncio.run(first_fast())
'B2'
"""

from tidegate.testing.clock import ManualClock
from tidegate.testing.memory import MemoryLog
from tidegate.testing.recording import Recorded, RecordingSink

__all__ = ["ManualClock", "MemoryLog", "Recorded", "RecordingSink"]
