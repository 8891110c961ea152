"""For tests of what is built on Tidegate: a clock that is turned by hand, a log in memory, a sink that remembers.

They keep the same promises as those of the machine: the log passes the contract that files and Kafka pass. Nothing
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
...     (found,) = await sink.wait_for(1)
...     await hub.close()
...     return found.data["vid"]
>>> asyncio.run(first_fast())
'B2'
"""

from tidegate.testing.clock import ManualClock
from tidegate.testing.memory import MemoryLog
from tidegate.testing.recording import Recorded, RecordingSink

__all__ = ["ManualClock", "MemoryLog", "Recorded", "RecordingSink"]
