"""`pattern`: finds sequences of events of one key."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.model import Field, Schema
from tidegate.model.types import Array
from tidegate.model.units import duration_text
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import (
    TIMESTAMP,
    add_field,
    attribute,
    derived_schema,
    need_event_time,
    note_filter,
    single_valued,
)
from tidegate.services.operators.settings import (
    Settings,
    read_names,
    read_seconds,
    required_setting,
    without_empty,
    write_seconds,
)
from tidegate.services.operators.state_layout import StateLayout, event_parts, keys_text

ABSENT = "absent"
"""The name of every absent step."""
MAX_STEPS, MAX_TIMES = 32, 10_000
MATCH_BOUNDS = (Field("match_start", TIMESTAMP), Field("match_end", TIMESTAMP))
_ANY = "any"
_STEP_KEYS = ("for", "times")
_TIMES = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})?", re.ASCII)
_TIMES_EXPECTED = f"a number of events from 1 to {MAX_TIMES}, or a range such as 2.. or 2..5"


@dataclass(frozen=True)
class PatternStep:
    """One step of a pattern: events that satisfy a condition, or their absence."""

    name: str
    """The attribute of the output that holds the matched events; of an absent step `absent`."""
    where: str | None
    """The text of a filter; None: any event."""
    least: int = 1
    most: int | None = 1
    """None: any number from `least` on."""
    for_s: float | None = None
    """All events of the key satisfy `where` for at least so long; of an absent step: none does."""
    absent: bool = False
    """True: no such event occurs after the step before, for `for_s` or else until the next step."""

    @property
    def is_single(self) -> bool:
        """True if the step matches exactly one event, so that the output has a struct and not an array."""
        return self.least == self.most == 1 and self.for_s is None


@dataclass(frozen=True)
class PatternOperator:
    """Find sequences of events of one key.

    The output has the attributes of `by`, an attribute for each step that is not absent, with its matched events, and
    `match_start` and `match_end`. The event time is `match_end`.
    """

    by: tuple[str, ...]
    steps: tuple[PatternStep, ...]
    within_s: float | None = None
    """The largest time from the first to the last matched event; None: no limit."""
    span: tuple[str, float] | None = None
    """An attribute, and the largest difference of its values in the last and the first matched event."""
    lateness_s: float = 0.0


# Reading ---------------------------------------------------------------------


def _read(spot: Spot) -> PatternOperator:
    keys = ("by", "steps", "within", "span", "lateness")
    settings = spot.entries(keys, "a pattern, such as {by: [vid], steps: [{stopped: 'speed < 1', for: 5m}]}")
    steps = required_setting(settings, "steps", spot)
    return PatternOperator(
        read_names(settings.get("by")),
        tuple(map(_read_step, steps.items("a list of steps, such as [{stopped: 'speed < 1', for: 5m}]"))),
        settings["within"].seconds() if "within" in settings else None,
        _read_span(settings["span"]) if "span" in settings else None,
        read_seconds(settings, "lateness"),
    )


def _read_step(spot: Spot) -> PatternStep:
    pairs = spot.pairs("a step, such as {stopped: 'speed < 1', for: 5m}")
    names = [name for name in pairs if name not in _STEP_KEYS]
    if len(names) != 1:
        if pairs or isinstance(spot.value, Mapping):
            spot.refuse("one name with a condition, such as {braking: 'accel < -3', times: 3}")
        return PatternStep("", None)
    (name,) = names
    text = pairs[name].text("the text of a filter, or any")
    at_least, at_most = _read_times(pairs["times"]) if "times" in pairs else (1, 1)
    for_s = pairs["for"].seconds() if "for" in pairs else None
    if "times" in pairs and "for" in pairs:
        pairs["times"].report("expected times or for, not both")
    elif "times" in pairs and name == ABSENT:
        pairs["times"].report("an absent step has no times: expected for, or nothing")
    return PatternStep(name, None if text == _ANY else text, at_least, at_most, for_s, name == ABSENT)


def _read_times(spot: Spot) -> tuple[int, int | None]:
    if not isinstance(spot.value, str):
        count = spot.whole(_TIMES_EXPECTED, 1, MAX_TIMES)
        return count, count
    match = _TIMES.fullmatch(spot.value.replace(" ", ""))
    at_least = int(match[1]) if match else 0
    at_most = int(match[2]) if match and match[2] else None
    if not 1 <= at_least <= MAX_TIMES or (at_most is not None and not at_least <= at_most <= MAX_TIMES):
        spot.refuse(_TIMES_EXPECTED)
        return 1, 1
    return at_least, at_most


def _read_span(spot: Spot) -> tuple[str, float] | None:
    pairs = spot.pairs("an attribute with its largest difference, such as {odometer: 1000}")
    if len(pairs) != 1:
        if isinstance(spot.value, Mapping):
            spot.refuse("one attribute with its largest difference, such as {odometer: 1000}")
        return None
    ((name, limit),) = pairs.items()
    return name, limit.number("a difference, 0 or more", 0, math.inf)


# Writing ---------------------------------------------------------------------


def _write(operator: PatternOperator) -> Settings:
    return {
        **without_empty(by=list(operator.by)),
        "steps": [_write_step(step) for step in operator.steps],
        **without_empty(
            within=None if operator.within_s is None else duration_text(operator.within_s),
            span=None if operator.span is None else dict([operator.span]),
            lateness=write_seconds(operator.lateness_s),
        ),
    }


def _write_step(step: PatternStep) -> Settings:
    return {
        step.name: _ANY if step.where is None else step.where,
        **without_empty(times=_write_times(step), **{"for": None if step.for_s is None else duration_text(step.for_s)}),
    }


def _write_times(step: PatternStep) -> Any:
    if step.least == step.most:
        return None if step.least == 1 else step.least
    return f"{step.least}..{'' if step.most is None else step.most}"


# Schema inference ------------------------------------------------------------


def _infer(operator: PatternOperator, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    schema = inputs.schema
    need_event_time(schema, spot, "to order the events of a key")
    fields = {field.name: field for field in single_valued(operator.by, schema, spot, "by")}
    for bound in MATCH_BOUNDS:
        add_field(bound, fields, spot.at("by", None))
    _note_order(operator, spot.at("steps", None))
    for n, step in enumerate(operator.steps):
        at = spot.at("steps", None).at(n, None)
        if step.where is not None:
            note_filter(step.where, (), schema, at.at(step.name, None))
        _note_counts(step, at)
        if not step.absent:
            add_field(Field(step.name, schema.root if step.is_single else Array(schema.root)), fields, at)
    _note_limits(operator, schema, spot)
    return derived_schema(spot, fields.values(), MATCH_BOUNDS[1].name, [(schema, set(operator.by))])


def _note_order(operator: PatternOperator, spot: Spot) -> None:
    """Report steps in an order that has no meaning."""
    steps = operator.steps
    if not 1 <= len(steps) <= MAX_STEPS:
        spot.report(f"expected 1 to {MAX_STEPS} steps, not {len(steps)}")
        return
    if steps[0].absent:
        spot.at(0, None).report("the first step can't be absent: begin with an event, such as {seen: any}")
    for n, step in enumerate(steps):
        if not step.absent or step.for_s is not None:
            continue
        if n == len(steps) - 1:
            spot.at(n, None).report("an absent step at the end needs a length of time, such as for: 10m")
        elif steps[n + 1].absent:
            spot.at(n, None).report("an absent step before another needs a length of time, such as for: 10m")


def _note_counts(step: PatternStep, spot: Spot) -> None:
    """Report numbers and durations that reading can't produce, but Python code can."""
    at_most = step.least if step.most is None else step.most
    if not 1 <= step.least <= at_most <= MAX_TIMES:
        spot.report(f"expected {_TIMES_EXPECTED}")
    if step.for_s is not None and (step.least, step.most) != (1, 1):
        spot.report("expected times or for, not both")
    if step.for_s is not None and step.for_s <= 0:
        spot.report("expected a length of time above 0")
    if step.absent != (step.name == ABSENT):
        spot.report(f"expected the name {ABSENT!r} for absent steps, and only for them, not {step.name!r}")
    elif step.name in ("", *_STEP_KEYS):
        spot.report(f"expected another name for a step than {step.name!r}")


def _note_limits(operator: PatternOperator, schema: Schema, spot: Spot) -> None:
    """Report bad values of `within`, `span` and `lateness`."""
    if (operator.within_s is not None and operator.within_s <= 0) or operator.lateness_s < 0:
        spot.report("expected a within above 0, and no negative lateness")
    if operator.span is None:
        return
    name, limit = operator.span
    at = spot.at("span", None).at(name, None)
    field = attribute(name, schema, at)
    if field is not None and field.type.kind not in ("int", "float"):
        at.report(f"span expected a number; {name} is {field.type}")
    if not limit >= 0:
        at.report(f"expected a difference, 0 or more, not {limit}")


def _state(operator: PatternOperator, inputs: OperatorInputs) -> StateLayout:
    steps = [
        f"{step.name} {step.least}..{'' if step.most is None else step.most}{' lasting' * (step.for_s is not None)}"
        for step in operator.steps
    ]
    fixed = {"by": keys_text(operator.by, inputs.schema), "steps": ", ".join(steps)}
    return StateLayout("pattern", fixed, event_parts(inputs.schema))


DECLARATION = Declaration(
    "pattern",
    PatternOperator,
    "pattern: {by: [vid], steps: [{stopped: 'speed < 1', for: 5m}]}",
    _read,
    _write,
    _infer,
    state=_state,
)
