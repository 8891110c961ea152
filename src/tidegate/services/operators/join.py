"""`join`: combines events of two or more streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from tidegate.model import Field, Schema
from tidegate.model.units import duration_text
from tidegate.services.findings import Spot
from tidegate.services.operators.branches import Branch, all_inputs, read_branches, write_branches
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import (
    add_field,
    comparable,
    derived_schema,
    joined_name,
    need_event_time,
    single_valued,
)
from tidegate.services.operators.settings import (
    Settings,
    read_names,
    read_seconds,
    required_setting,
    without_empty,
    write_names,
    write_seconds,
)
from tidegate.services.operators.state_layout import StateLayout, event_parts, keys_text
from tidegate.services.operators.windows import CountWindow, note_window, read_count_window, window_text, write_window

JoinKind = Literal["inner", "left", "full"]


@dataclass(frozen=True)
class Join:
    """Combine the events of two or more inputs that agree on attributes; without attributes all pairs.

    The inputs are those before the operator (of the first operator those in `from`), then `inputs`. A combination has
    one event of each. Its events are at most `within_s` apart in event time, or in the same window by count; exactly
    one of both is set.

    The output has all attributes of the first input; then those of each other input, under `<input>_<attribute>` if
    the name is taken. The attributes of `on` occur once. The event time is that of the first input: of a full join
    without an event of the first input, it is the time of the first input that has one.
    """

    on: tuple[str, ...] = ()
    within_s: float | None = None
    lateness_s: float = 0.0
    how: JoinKind = "inner"
    """`left` also emits events of the first input without a partner, `full` those of all inputs."""
    window: CountWindow | None = None
    inputs: tuple[Branch, ...] = ()


def _read(spot: Spot) -> Join:
    keys = ("on", "within", "window", "lateness", "how", "with")
    settings = spot.entries(keys, "a join, such as {on: cid, within: 30s}")
    window = read_count_window(settings["window"]) if "window" in settings else None
    within_s = None
    if window is None:
        within_s = required_setting(settings, "within", spot).seconds(zero=True)
    else:
        for key in ("within", "lateness"):
            if key in settings:
                settings[key].report(f"expected {key} or a window by count, not both")
    return Join(
        read_names(settings.get("on")),
        within_s,
        read_seconds(settings, "lateness"),
        cast("JoinKind", settings["how"].choice(("inner", "left", "full"))) if "how" in settings else "inner",
        window,
        read_branches(settings["with"]) if "with" in settings else (),
    )


def _write(operator: Join) -> Settings:
    return without_empty(
        on=write_names(operator.on),
        within=None if operator.within_s is None else duration_text(operator.within_s),
        window=None if operator.window is None else write_window(operator.window),
        lateness=write_seconds(operator.lateness_s),
        how=operator.how if operator.how != "inner" else None,
        **{"with": write_branches(operator.inputs)},
    )


def _infer(operator: Join, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    streams = all_inputs(operator.inputs, inputs, spot)
    if len(streams) < 2:
        spot.report("expected at least two inputs: name more in from, or under with, such as {with: [weather]}")
        return None
    _note_closeness(operator, streams, spot)
    _note_keys(operator, streams, spot)
    left = streams[0][1]
    fields = {field.name: _left_field(field, operator, streams) for field in left.root}
    sources = [(left, {name for name in fields if _keeps_constraints(name, operator, streams)})]
    for name, schema in streams[1:]:
        unchanged: set[str] = set()
        for field in schema.root:
            if field.name in operator.on:
                continue
            is_taken = field.name in fields
            if not is_taken and operator.how == "inner":
                unchanged.add(field.name)
            new_name = joined_name(name, field.name) if is_taken else field.name
            add_field(Field(new_name, field.type, field.required and operator.how == "inner"), fields, spot)
        sources.append((schema, unchanged))
    return derived_schema(spot, fields.values(), left.event_time, sources)


def _note_closeness(operator: Join, streams: Sequence[tuple[str, Schema]], spot: Spot) -> None:
    """Report a join without exactly one of `within` and `window`, or whose inputs lack an event time."""
    if (operator.within_s is None) == (operator.window is None):
        spot.report("expected either within or a window by count")
    if (operator.within_s or 0) < 0 or operator.lateness_s < 0:
        spot.report("expected no negative length of time")
    note_window(operator.window, streams[0][1], spot)
    if operator.within_s is not None:
        for name, schema in streams:
            need_event_time(schema, spot, f"of {name}, to tell how far apart two events are")


def _note_keys(operator: Join, streams: Sequence[tuple[str, Schema]], spot: Spot) -> None:
    """Report attributes of `on` that an input lacks, or that can't be equal."""
    (left_name, left), *others = streams
    keys = {field.name: field for field in single_valued(operator.on, left, spot, "on")}
    for name, schema in others:
        for field in single_valued(operator.on, schema, spot, "on"):
            ours = keys.get(field.name)
            if ours is None:
                continue
            kinds = f"{field.name} is {ours.type} in {left_name} and {field.type} in {name}"
            if not comparable(ours.type, field.type):
                spot.at("on", None).report(f"expected attributes of the same type: {kinds}")
            elif operator.how == "full" and ours.type != field.type:
                spot.at("on", None).report(f"a full join needs attributes of exactly the same type: {kinds}")


def _left_field(field: Field, operator: Join, streams: Sequence[tuple[str, Schema]]) -> Field:
    """Return the output attribute for an attribute of the first input."""
    if operator.how != "full":
        return field
    if field.name in operator.on:
        names: Mapping[str, str | None] = {name: field.name for name, _ in streams}
    elif field.name == streams[0][1].event_time:
        names = {name: schema.event_time for name, schema in streams}
    else:
        return Field(field.name, field.type, required=False)
    # Filled from the first input that has an event, so it is there if all inputs require it.
    sources = [schema.root.get(names[name] or "") for name, schema in streams]
    return Field(field.name, field.type, all(source is not None and source.required for source in sources))


def _keeps_constraints(name: str, operator: Join, streams: Sequence[tuple[str, Schema]]) -> bool:
    """Return True if the constraints and terms of an attribute of the first input hold for the output too."""
    if operator.how != "full":
        return True
    left = streams[0][1]
    return name in operator.on and all(
        schema.constraints.get(name) == left.constraints.get(name) and schema.terms.get(name) == left.terms.get(name)
        for _, schema in streams[1:]
    )


def _state(operator: Join, inputs: OperatorInputs) -> StateLayout:
    streams = [*inputs.main, *((joined.stream, inputs.streams[joined.stream]) for joined in operator.inputs)]
    fixed = {"on": keys_text(operator.on, inputs.schema), "inputs": ", ".join(name for name, _ in streams)}
    if operator.window is not None:
        fixed["window"] = window_text(operator.window)
    parts = {f"{name}.{part}": type_ for name, schema in streams for part, type_ in event_parts(schema).items()}
    return StateLayout("join" if operator.window is None else "join by count", fixed, parts)


DECLARATION = Declaration("join", Join, "join: {on: cid, within: 30s}", _read, _write, _infer, state=_state)
