"""Finds changes of a service's output that break its subscribers, and changes of a raw stream that break producers.

A change is safe if every filter that is valid for the old output, and can match, is also valid for the new output with
the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.errors import TidegateError
from tidegate.filters import Constraints
from tidegate.model import Schema
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Struct, Type


def breaking(old: Schema, new: Schema) -> list[str]:
    """Return, as sentences, what in a new output schema breaks existing subscribers; empty: the change is safe.

    Safe changes are additional attributes, wider integers, additional labels at the end of an enum, longer arrays,
    weaker constraints, and attributes that become optional: a filter treats a missing value as unknown.

    >>> breaking(Schema({"speed": "float64", "n": "int32"}), Schema({"n": "int64"}))
    ['the attribute speed is gone']
    """
    sentences = list(_struct(old.root, new.root, ""))
    if not sentences:
        sentences += _separated_enums(old, new)
    if old.event_time is not None and old.event_time != new.event_time:
        sentences.append(f"the event time was {old.event_time} and is {new.event_time or 'none'}")
    for name, terms in old.terms.items():
        now = {term.lower(): text for term, text in new.terms.get(name, {}).items()}
        for term, text in terms.items():
            if term.lower() not in now:
                sentences.append(f"the term {term} of {name} is gone")
            elif now[term.lower()] != text:
                sentences.append(f"the term {term} of {name} was {text} and is {now[term.lower()]}")
    sentences += _stricter_constraints(old, new)
    return sentences


def breaking_for_producers(old: Schema, new: Schema) -> list[str]:
    """Return, as sentences, what in a new schema of a raw stream refuses events that producers send now.

    These are attributes that become required: new ones, and optional ones that are no longer optional.

    >>> breaking_for_producers(Schema({"vid": "string"}), Schema({"vid": "string", "n": "int32", "m": "int32?"}))
    ['the attribute n is new and required: make it optional, int32?']
    """
    return list(_newly_required(old.root, new.root, ""))


def _newly_required(old: Struct, new: Struct, prefix: str) -> Iterator[str]:
    for field in new:
        before, where = old.get(field.name), f"{prefix}{field.name}"
        if before is None:
            if field.required:
                yield f"the attribute {where} is new and required: make it optional, {field.type}?"
            continue
        if field.required and not before.required:
            yield f"the attribute {where} was optional and is required"
        before_type, type_ = before.type, field.type
        while isinstance(before_type, Array) and isinstance(type_, Array):
            before_type, type_, where = before_type.item, type_.item, f"{where}[]"
        if isinstance(before_type, Struct) and isinstance(type_, Struct):
            yield from _newly_required(before_type, type_, f"{where}.")


def _separated_enums(old: Schema, new: Schema) -> Iterator[str]:
    """Yield pairs of enums that had the same labels and no longer have: only equal enums can be compared."""
    groups: dict[Enum, list[tuple[str, Enum]]] = {}
    for where, before, after in _enums(old.root, new.root, ""):
        groups.setdefault(before, []).append((where, after))
    for (first, kind), *others in groups.values():
        for where, other in others:
            if other != kind:
                yield f"{first} and {where} had the same labels, and can no longer be compared"


def _enums(old: Type, new: Type, where: str) -> Iterator[tuple[str, Enum, Enum]]:
    match old, new:
        case Struct(), Struct():
            for field in old:
                now = new.get(field.name)
                assert now is not None
                yield from _enums(field.type, now.type, f"{where}.{field.name}" if where else field.name)
        case Array(), Array():
            yield from _enums(old.item, new.item, f"{where}[]")
        case Enum(), Enum():
            yield where, old, new


def _stricter_constraints(old: Schema, new: Schema) -> Iterator[str]:
    """Yield new and stricter constraints: they may exclude events that a subscriber waits for."""
    new_names = {field.name for field in new.root}
    for name, text in new.constraints.items():
        before = old.constraints.get(name)
        existed = old.root.get(name) is not None or "." in name
        if before == text or not existed or (old.root.get(name) is not None and name not in new_names):
            continue
        if before is None:
            yield f"{name} has a new constraint: {name} {text}"
        elif not _covers(new, name, text, before):
            yield f"the constraint on {name} was {name} {before} and is {name} {text}"


def _covers(schema: Schema, name: str, text: str, before: str) -> bool:
    """Return True if the constraint `text` allows everything that `before` allowed."""
    try:
        new_filter, old_filter = (
            Constraints(Schema(schema.root, constraints={name: constraint}, terms=schema.terms)).filters[name]
            for constraint in (text, before)
        )
    except TidegateError:
        return False
    return new_filter.covers(old_filter)


def _struct(old: Struct, new: Struct, prefix: str) -> Iterator[str]:
    for field in old:
        now = new.get(field.name)
        where = f"{prefix}{field.name}"
        if now is None:
            yield f"the attribute {where} is gone"
        else:
            yield from _type(field.type, now.type, where)


def _type(old: Type, new: Type, where: str) -> Iterator[str]:
    match old, new:
        case Struct(), Struct():
            yield from _struct(old, new, f"{where}.")
        case Array(), Array():
            yield from _array(old, new, where)
        case Enum(), Enum():
            yield from _enum(old, new, where)
        case _:
            if old != new and not _is_wider(old, new):
                yield f"{where} was {old} and is {new}"


def _array(old: Array, new: Array, where: str) -> Iterator[str]:
    if new.bound is not None and (old.bound is None or new.bound < old.bound):
        had = "any number of elements" if old.bound is None else f"at most {old.bound} elements"
        yield f"{where} had {had} and has at most {new.bound}"
    yield from _type(old.item, new.item, f"{where}[]")


def _enum(old: Enum, new: Enum, where: str) -> Iterator[str]:
    gone = [label for label in old.labels if label not in new.labels]
    if gone:
        yield f"{where} has no label {', '.join(gone)} any more"
    elif new.labels[: len(old.labels)] != old.labels:
        order = ", ".join(new.labels)
        yield f"the labels of {where} have another order, which comparisons use: {order}"


def _is_wider(old: Type, new: Type) -> bool:
    """Return True if every filter on the old type is valid on the new one, with the same meaning."""
    if old.kind == "int" and new.kind == "int":
        low, high = INTEGER_RANGES[str(old)]
        new_low, new_high = INTEGER_RANGES[str(new)]
        return new_low <= low and high <= new_high
    # Not float32 to float64: `x = 0.1` matches the float32 nearest to 0.1, but not the same value as a float64.
    return old.kind == "char" and new.kind == "string"
