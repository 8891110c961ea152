"""Fast validation of events: generates a Python function for a schema that returns True for valid events.

`model.events.violations` lists the violations of any Python value, and is slower. The generated function accepts JSON
values only, and agrees with `violations` on all of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

from tidegate.model import timestamps
from tidegate.model.events import GREATEST_FLOAT32, is_text, value_violations
from tidegate.model.schema import RESERVED, Schema
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Scalar, Struct, Type

Validator = Callable[[Any], bool]


@lru_cache(maxsize=1_024)
def validator(schema: Schema) -> Validator:
    """Return a function that returns True if a JSON value is an event of the schema.

    >>> valid = validator(Schema({"vid": "string", "speed": "float64?"}))
    >>> valid({"vid": "B17", "_id": "1"}), valid({"vid": "B17", "sped": 3})
    (True, False)
    """
    generator = _CodeGenerator()
    name = generator.struct(schema.root, is_root=True)
    exec(compile("\n".join(generator.lines), "<validator>", "exec"), generator.names)
    function: Validator = generator.names[name]
    return function


def _is_time(text: str) -> bool:
    # Fast path for times in UTC: takes a sixth of the time of `from_text`.
    if text[-1:] == "Z" and text.isascii():
        try:
            datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            return True
    return timestamps.from_text(text) is not None


def _has_only_reserved(event: dict[str, Any], known: frozenset[str], reserved: dict[str, Type]) -> bool:
    """True if all keys that are not attributes of the schema are reserved keys with valid values."""
    for name, value in event.items():
        if name in known:
            continue
        kind = reserved.get(name)
        if kind is None:
            return False
        if value is not None and any(True for _ in value_violations(value, kind, name)):
            return False
    return True


class _CodeGenerator:
    """Generates the source of a validator: one function per struct and array, inner ones first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "finite": math.isfinite,
            "is_text": is_text,
            "is_time": _is_time,
            "has_only_reserved": _has_only_reserved,
        }

    def struct(self, struct: Struct, *, is_root: bool = False) -> str:
        """Generate the function of a struct, and return its name."""
        checks = [self._check(field.type) for field in struct]
        known = self._constant(frozenset(field.name for field in struct))
        reserved = self._constant(RESERVED if is_root else {})
        name = self._name("struct")
        body = [
            f"def {name}(event):",
            "    if type(event) is not dict: return False",
            "    get = event.get",
            f"    count = {sum(field.required for field in struct)}",
        ]
        for field, check in zip(struct, checks, strict=True):
            body.append(f"    v = get({field.name!r})")
            if field.required:
                body.append(f"    if v is None or not ({check}): return False")
            else:
                body += ["    if v is not None:", f"        if not ({check}): return False", "        count += 1"]
        if is_root:  # ids are common: avoid the slow path for them
            body += ["    v = get('_id')", "    if type(v) is str and v.isascii(): count += 1"]
        # If there are as many keys as attributes found, there are no other keys.
        body.append(f"    return len(event) == count or has_only_reserved(event, {known}, {reserved})")
        self.lines += body
        return name

    def array(self, array: Array) -> str:
        """Generate the function of an array, and return its name."""
        check = self._check(array.item)
        name = self._name("array")
        bound = "" if array.bound is None else f" or len(items) > {array.bound}"
        self.lines += [
            f"def {name}(items):",
            f"    if type(items) is not list{bound}: return False",
            "    for v in items:",
            f"        if v is not None and not ({check}): return False",
            "    return True",
        ]
        return name

    def _check(self, kind: Type) -> str:
        """Return an expression that is true if `v`, which is not null, has the type."""
        match kind:
            case Struct():
                return f"{self.struct(kind)}(v)"
            case Array():
                return f"{self.array(kind)}(v)"
            case Enum():
                labels = self._constant(frozenset(kind.labels))
                return f"type(v) is str and v in {labels} or type(v) is int and 0 <= v < {len(kind.labels)}"
        return self._check_scalar(kind)

    def _check_scalar(self, kind: Scalar) -> str:
        match kind.kind:
            case "bool":
                return "type(v) is bool"
            case "int":
                low, high = INTEGER_RANGES[kind.name]
                return f"type(v) is int and {low} <= v <= {high}"
            case "float" if kind.name == "float32":
                inside = f"{-GREATEST_FLOAT32!r} <= v <= {GREATEST_FLOAT32!r}"
                return f"type(v) is float and ({inside} or not finite(v)) or type(v) is int and {inside}"
            case "float":
                greatest = sys.float_info.max
                return f"type(v) is float or type(v) is int and {-greatest!r} <= v <= {greatest!r}"
            case "char":
                return "type(v) is str and len(v) == 1 and is_text(v)"
            case "time":
                return "type(v) is str and is_time(v)"
        return "type(v) is str and (v.isascii() or is_text(v))"

    def _constant(self, value: Any) -> str:
        name = self._name("constant")
        self.names[name] = value
        return name

    def _name(self, prefix: str) -> str:
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = None
        return name
