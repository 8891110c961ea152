"""`custom`: a Python function over Arrow record batches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tidegate.model import Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import TIMESTAMP, single_valued
from tidegate.services.operators.settings import Settings, read_names, required_setting, without_empty
from tidegate.services.operators.state_layout import StateLayout, event_parts, keys_text
from tidegate.services.operators.windows import Window, note_window, read_window, window_text, write_window
from tidegate.services.schemas import read_schema

IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""`module:function`, or `module:object.function`."""
FUNCTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
"""The name of a function or connection in a profile."""
_FUNCTION = "a function: a name that the profile registers, or module:function"


@dataclass(frozen=True)
class Custom:
    """A Python function from an iterator of Arrow record batches to another, in the order of the input.

    Every batch has the attributes, and the reserved `_id` and `_time`. Without a window a call gets a batch as it
    arrives, and the rows that it returns carry the `_id` of the event that they come from.
    """

    function: str
    """A name that the profile registers or, in a file of the operator, `module:function`."""
    schema: Schema
    """The schema of the rows that it returns."""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Keyword arguments of the function."""
    by: tuple[str, ...] = ()
    window: Window | None = None
    """With a window, a call gets all events of a key and window at once, in order."""


def _read(spot: Spot) -> Custom:
    settings = spot.entries(
        ("function", "schema", "event_time", "options", "by", "window"), "a function and the schema of its result"
    )
    function = required_setting(settings, "function", spot)
    name = function.text(_FUNCTION)
    if name and not IMPORT_PATH.fullmatch(name) and not FUNCTION_NAME.fullmatch(name):
        function.refuse(_FUNCTION)
    schema = read_schema(
        {key: setting for key, setting in settings.items() if key in ("schema", "event_time")},
        required_setting(settings, "schema", spot),
    )
    options = settings["options"].pairs("options by name") if "options" in settings else {}
    return Custom(
        name,
        schema,
        MappingProxyType({key: option.value for key, option in options.items()}),
        read_names(settings.get("by")),
        read_window(settings["window"]) if "window" in settings else None,
    )


def _write(operator: Custom) -> Settings:
    return {
        "function": operator.function,
        "schema": operator.schema.to_dict(),
        **without_empty(
            event_time=operator.schema.event_time,
            options=dict(operator.options),
            by=list(operator.by),
            window=None if operator.window is None else write_window(operator.window),
        ),
    }


def _infer(operator: Custom, inputs: OperatorInputs, spot: Spot) -> Schema:
    single_valued(operator.by, inputs.schema, spot, "by")
    note_window(operator.window, inputs.schema, spot)
    declared, time = operator.schema, inputs.schema.event_time
    if declared.event_time is None and time is not None:
        time_field = declared.root.get(time)
        if time_field is not None and time_field.type == TIMESTAMP:
            return Schema(declared.root, constraints=declared.constraints, terms=declared.terms, event_time=time)
    return declared


def _state(operator: Custom, inputs: OperatorInputs) -> StateLayout | None:
    if operator.window is None:
        return None
    fixed = {"by": keys_text(operator.by, inputs.schema), "window": window_text(operator.window)}
    return StateLayout("custom", fixed, event_parts(inputs.schema), is_rigid=True)


DECLARATION = Declaration(
    "custom", Custom, "custom: {function: 'module:function', schema: {...}}", _read, _write, _infer, state=_state
)
