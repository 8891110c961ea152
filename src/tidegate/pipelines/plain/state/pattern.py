"""Patterns: the partial matches of each key, in order of time. The connector's `PatternShape` is the reference."""

from __future__ import annotations

import math
from bisect import insort
from typing import Any

from tidegate.pipelines.plain.state.aggregates import json_array
from tidegate.pipelines.plain.state.plan import Record, StageOutputs, State, StatePlan, instant

MAX_RUNS = 1_000
"""Runs of a key at a time; the oldest gives way."""

Run = dict[str, Any]
"""A partial match: step, taken, start, span, since, end, and for each step the events that it took."""
Event = list[Any]
"""A waiting event: time, tie, which steps it satisfies, its span or None, JSON."""
_TIME, _TIE, _SATISFIES, _SPAN, _JSON = range(5)


class PatternShape:
    """Finds a pattern in the events of each key.

    Every event that satisfies the first step begins a run. The first run that completes gives a match and ends all runs
    of its key. Events that a run does not need are skipped. A step with `for` ends its run at the first event that does
    not satisfy it, and lasts until the watermark has passed. An absent step ends its run at an event that satisfies it.
    """

    def __init__(self, plan: StatePlan) -> None:
        self._plan = plan
        self.delay = plan.lateness
        self._within = plan.within if plan.within >= 0 else None

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Let a record wait until none can come before it."""
        plan = self._plan
        last = state.get("last")
        if out.has_passed(record.time + plan.lateness + 1) and last is not None and record.time < last:
            out.refuse_late(record, f"its time is {instant(record.time)}")
            return
        satisfies = [record.arguments[n] is True for n in range(len(plan.steps))]
        span = record.arguments[plan.span] if plan.span >= 0 else None
        insort(
            state.setdefault("waiting", []),
            [record.time, record.tie, satisfies, span, record.event],
            key=lambda event: event[: _TIE + 1],
        )

    def due(self, state: State, key: str, out: StageOutputs) -> None:
        """Let the runs of a key see the events that the watermark has passed, and the time since."""
        assert out.watermark is not None
        state.setdefault("runs", [])
        waiting: list[Event] = state.get("waiting", [])
        while waiting and out.has_passed(waiting[0][_TIME] + self._plan.lateness):
            event = waiting.pop(0)
            self._expire(state, key, event[_TIME], out)
            self._advance(state, key, event, out)
            state["last"] = max(state.get("last", event[_TIME]), event[_TIME])
        self._expire(state, key, out.watermark - self._plan.lateness, out)

    def timer(self, state: State) -> int | None:
        """Return when the first event stops waiting, or a step that lasts is complete."""
        times = [event[_TIME] for event in state.get("waiting", [])[:1]]
        times += [time for run in state.get("runs", []) if (time := self._lasts_until(run)) is not None]
        return min(times) + self._plan.lateness if times else None

    # Runs ------------------------------------------------------------------------

    def _lasting(self, step: int) -> int | None:
        lasting: int = self._plan.steps[step].get("for", -1)
        return lasting if lasting >= 0 else None

    def _is_absent(self, step: int) -> bool:
        return bool(self._plan.steps[step].get("absent", False))

    def _least(self, step: int) -> int:
        least: int = self._plan.steps[step].get("least", 1)
        return least

    def _most(self, step: int) -> float:
        most = self._plan.steps[step].get("most")
        return math.inf if most is None else float(most)

    def _is_full(self, run: Run) -> bool:
        """Return whether a step takes no more events. Before an absent step the least are enough: `_is_longer`."""
        step = run["step"]
        is_before_absent = step + 1 < len(self._plan.steps) and self._is_absent(step + 1)
        enough = self._least(step) if is_before_absent else self._most(step)
        return self._lasting(step) is None and run["taken"] >= enough

    def _lasts_until(self, run: Run) -> int | None:
        """Return when the step of a run has lasted long enough. One with events lasts from its first event."""
        lasting = self._lasting(run["step"])
        has_begun = self._is_absent(run["step"]) or run["taken"] > 0
        return run["since"] + lasting if lasting is not None and has_begun else None

    def _expire(self, state: State, key: str, time: int, out: StageOutputs) -> None:
        """Complete steps that have lasted until a time, and drop runs that took too long."""
        for run in list(state["runs"]):
            is_over = False
            while not is_over and (until := self._lasts_until(run)) is not None and until <= time:
                run["end"] = until
                is_over = self._is_too_long(run, until)
                if not is_over and self._finish_step(state, key, run, out):
                    return
            if is_over or self._is_too_long(run, time):
                state["runs"].remove(run)

    def _is_too_long(self, run: Run, time: int) -> bool:
        return self._within is not None and time - run["start"] > self._within

    def _advance(self, state: State, key: str, event: Event, out: StageOutputs) -> None:
        was_inside, is_inside = state.get("inside", False), event[_SATISFIES][0]
        state["inside"] = is_inside
        for run in list(state["runs"]):
            outcome = self._feed(run, event)
            if outcome == "dead":
                state["runs"].remove(run)
            elif outcome == "complete" and self._finish_step(state, key, run, out):
                return
        if is_inside and not (self._lasting(0) is not None and was_inside):
            self._begin(state, key, event, out)

    def _begin(self, state: State, key: str, event: Event, out: StageOutputs) -> None:
        time = event[_TIME]
        run = {"step": 0, "taken": 0, "start": time, "span": event[_SPAN], "since": time, "end": time}
        run["events"] = [[] for _ in self._plan.steps]
        _take(run, event)
        state["runs"] = [*state["runs"], run][-MAX_RUNS:]
        if self._is_full(run) or self._is_complete(run):
            self._finish_step(state, key, run, out)

    def _feed(self, run: Run, event: Event) -> str:
        """Let a run see an event. Returns `alive`, `dead`, or `complete` if its step is."""
        step, satisfies = run["step"], event[_SATISFIES]
        if self._is_absent(step):
            return self._feed_absent(run, event)
        if self._lasting(step) is not None:
            if not satisfies[step]:
                return "dead" if run["taken"] else "alive"
            if run["taken"] == 0:
                run["since"] = event[_TIME]
            _take(run, event)
            return "alive"
        follows = step + 1 < len(self._plan.steps) and not self._is_absent(step + 1) and satisfies[step + 1]
        if run["taken"] >= self._least(step) and follows and self._is_within(run, event):
            run.update(step=step + 1, taken=0, since=event[_TIME])
            _take(run, event)
        elif satisfies[step] and run["taken"] < self._most(step) and self._is_within(run, event):
            _take(run, event)
        else:
            return "alive"
        if self._lasting(run["step"]) is not None:
            return "alive"
        return "complete" if self._is_full(run) or self._is_complete(run) else "alive"

    def _feed_absent(self, run: Run, event: Event) -> str:
        """Let a run see an event whose step must not come; without `for` the next step may come with any event."""
        step = run["step"]
        if self._is_longer(run, event):
            run["events"][step - 1].append(event[_JSON])
            run.update(since=event[_TIME], end=event[_TIME])
            return "alive"
        if event[_SATISFIES][step]:
            return "dead"
        if self._lasting(step) is not None:
            return "alive"
        run["step"] = step + 1
        outcome = self._feed(run, event)
        if run["taken"] == 0 and outcome == "alive":
            run["step"] = step
        return outcome

    def _is_longer(self, run: Run, event: Event) -> bool:
        """Return whether the step before an absent one takes one more event.

        It does not if the step behind the absent one can begin.
        """
        step, satisfies = run["step"], event[_SATISFIES]
        before = step - 1
        if self._is_absent(before) or self._lasting(before) is not None or not self._is_within(run, event):
            return False
        is_next = self._lasting(step) is None and satisfies[step + 1]
        return bool(len(run["events"][before]) < self._most(before) and satisfies[before] and not is_next)

    def _is_complete(self, run: Run) -> bool:
        """Return True if the last step has its minimum of events: a match does not wait for more."""
        step = run["step"]
        is_last = step == len(self._plan.steps) - 1
        return is_last and self._lasting(step) is None and run["taken"] >= self._least(step)

    def _is_within(self, run: Run, event: Event) -> bool:
        if self._is_too_long(run, event[_TIME]):
            return False
        if self._plan.span < 0:
            return True
        span, start = (math.nan if each is None else float(each) for each in (event[_SPAN], run["span"]))
        return abs(span - start) <= self._plan.span_limit

    def _finish_step(self, state: State, key: str, run: Run, out: StageOutputs) -> bool:
        """Go to the next step. If there is none, give the match, end all runs, and return True."""
        if run["step"] + 1 < len(self._plan.steps):
            run.update(step=run["step"] + 1, taken=0, since=run["end"])
            return False
        out.emit(key, run["start"], run["end"], events=[json_array(events) for events in run["events"]])
        state["runs"] = []
        return True


def _take(run: Run, event: Event) -> None:
    run["events"][run["step"]].append(event[_JSON])
    run["taken"] += 1
    run["end"] = event[_TIME]
