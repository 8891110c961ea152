"""A stage of the state engine as a processor of PySpark's `transformWithState`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from tidegate.pipelines.plain.state.plan import StatePlan
from tidegate.pipelines.plain.state.stage import Stage

OUTPUT = (
    "kind int, tick int, source string, clock string, k string, start long, end long, revision long, arrived long, "
    "event string, events array<string>, values array<string>, reason string"
)
"""The columns of the connector's `StateRecord.OUTPUT`."""


def with_state(frame: DataFrame, plan: str) -> DataFrame:
    """Add a stage to a frame whose columns are those that `stateful.stage` makes.

    Spark groups by the number of the state partition, not by the key of events: a batch comes to the processor as a
    whole, in one call.
    """
    whole = StatePlan(**json.loads(plan))
    number = F.pmod(F.hash("k"), F.lit(len(whole.tick_keys))).alias("number")
    grouped = frame.select(number, "*").groupBy("number")
    return grouped.transformWithState(StageProcessor(whole), OUTPUT, "Update", "None")


class StageProcessor(StatefulProcessor):
    """Runs a stage on one state partition; Spark makes one for each batch."""

    def __init__(self, plan: StatePlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._store = _SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - Spark's names
        """Return the rows that the stage gives for those of a batch."""
        for row in Stage(self._plan, int(key[0]), self._store).run(rows):
            yield _Output(row)

    def close(self) -> None:
        """Do nothing: Spark closes the state."""


class _Output(dict[str, Any]):
    """A row as Spark takes it, which asks only for this method of its own rows."""

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's name
        return self


class _SparkStore:
    """The state of the selected partition in Spark's state store."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._states = handle.getMapState("states", "key string", "state string")
        self._timers = handle.getMapState("timers", "key string", "time long")
        self._marks = handle.getValueState("marks", "marks string")

    def load(self, key: str) -> str | None:
        found = self._states.getValue((key,))
        return None if found is None else str(found[0])

    def save(self, key: str, text: str | None) -> None:
        if text is None:
            self._states.removeKey((key,))
        else:
            self._states.updateValue((key,), (text,))

    def timers(self) -> Iterable[tuple[str, int]]:
        return [(key[0], time[0]) for key, time in self._timers.iterator()]

    def save_timer(self, key: str, time: int | None) -> None:
        if time is None:
            self._timers.removeKey((key,))
        else:
            self._timers.updateValue((key,), (time,))

    def load_marks(self) -> str | None:
        found = self._marks.get()
        return None if found is None else str(found[0])

    def save_marks(self, text: str) -> None:
        self._marks.update((text,))
