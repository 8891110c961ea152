"""What a new version of a service breaks for those who subscribe to it.

The measure is a subscriber's filter: one that could be made on the old output,
and could match, can still be made on the new one and means the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.errors import TidegateError
from tidegate.filters import Constraints
from tidegate.model import Schema
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Struct, Type


def breaking(old: Schema, new: Schema) -> list[str]:
    """Say in sentences what in a new output schema breaks existing subscribers; nothing: it is safe.

    More attributes, wider numbers, more labels at the end of an enum and longer
    arrays break nothing, nor does an attribute that becomes optional: filters
    read what is missing as unknown already. Weaker constraints neither.

    >>> breaking(Schema({"speed": "float64", "n": "int32"}), Schema({"n": "int64"}))
    ['the attribute speed is gone']
    """
    found = list(_struct(old.root, new.root, ""))
    if not found:
        found += _parted(old, new)
    if old.event_time is not None and old.event_time != new.event_time:
        found.append(f"the event time was {old.event_time} and is {new.event_time or 'none'}")
    for name, terms in old.terms.items():
        now = {term.lower(): text for term, text in new.terms.get(name, {}).items()}
        for term, text in terms.items():
            if term.lower() not in now:
                found.append(f"the term {term} of {name} is gone")
            elif now[term.lower()] != text:
                found.append(f"the term {term} of {name} was {text} and is {now[term.lower()]}")
    found += _tighter(old, new)
    return found


def _parted(old: Schema, new: Schema) -> Iterator[str]:
    """Enums compare with each other as long as they have the same labels."""
    groups: dict[Enum, list[tuple[str, Enum]]] = {}
    for where, before, after in _enums(old.root, new.root, ""):
        groups.setdefault(before, []).append((where, after))
    for (first, kind), *others in groups.values():
        for where, other in others:
            if other != kind:
                yield f"{first} and {where} had the same labels, and compare with each other no more"


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


def _tighter(old: Schema, new: Schema) -> Iterator[str]:
    """Constraints that are new may leave a subscriber without the events it waits for."""
    kept = {field.name for field in new.root}
    for name, text in new.constraints.items():
        before = old.constraints.get(name)
        known = old.root.get(name) is not None or "." in name
        if before == text or not known or (old.root.get(name) is not None and name not in kept):
            continue
        if before is None:
            yield f"{name} has a constraint that it had not: {name} {text}"
        elif not _covers(new, name, text, before):
            yield f"the constraint on {name} was {name} {before} and is {name} {text}"


def _covers(schema: Schema, name: str, text: str, before: str) -> bool:
    """Whether all that one constraint allows the other does too."""
    try:
        made = [
            Constraints(Schema(schema.root, constraints={name: each}, terms=schema.terms)).filters[name]
            for each in (text, before)
        ]
    except TidegateError:
        return False
    return made[0].covers(made[1])


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
        yield f"the labels of {where} have other places, and compare by them: {order}"


def _is_wider(old: Type, new: Type) -> bool:
    """Whether every filter on the one type is one on the other, with the same meaning."""
    if old.kind == "int" and new.kind == "int":
        low, high = INTEGER_RANGES[str(old)]
        least, most = INTEGER_RANGES[str(new)]
        return least <= low and high <= most
    # Not float32 to float64: `x = 0.1` is true of the float32 nearest to 0.1, and not of the same float64.
    return old.kind == "char" and new.kind == "string"
