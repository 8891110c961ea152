"""The content of an operator's state, and whether a new version of its service can use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.model import Schema

StateEffect = Literal["keeps", "migrates", "starts anew"]
"""What happens to the state of a service when a new version of it is applied."""


@dataclass(frozen=True)
class StateLayout:
    """The content of an operator's state. A new version can use it if `kind`, `fixed` and types of `parts` agree."""

    kind: str
    """The form of the state, in words, such as "aggregate by session"."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Settings by name that decide which values a key has, such as the length of a window."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Type of each stored value of an event or a window, by name. A new version may add and remove parts."""
    is_rigid: bool = False
    """True if a new version may neither add nor remove parts."""

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as JSON; `from_dict` reads it."""
        return {"kind": self.kind, "fixed": dict(self.fixed), "parts": dict(self.parts), "is_rigid": self.is_rigid}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> StateLayout:
        """Read a document of `to_dict`."""
        return cls(document["kind"], document["fixed"], document["parts"], document["is_rigid"])


@dataclass(frozen=True)
class StateChange:
    """What a new version does with the state of the previous version, and why."""

    effect: StateEffect
    reasons: tuple[str, ...] = ()
    """Sentences that name the new parts of a state that migrates, or the reasons why a state can't be used."""

    def __str__(self) -> str:
        return f"{self.effect}: {'; '.join(self.reasons)}" if self.reasons else self.effect


def compare_layouts(old: Sequence[StateLayout], new: Sequence[StateLayout]) -> StateChange:
    """Return what a new version does with an old state. Both have the layouts of the operators with state, in order.

    >>> old = StateLayout("aggregate", {"window": "10s"}, {"count(*)": "int64"})
    >>> str(compare_layouts([old], [StateLayout("aggregate", {"window": "10s"}, {"max(n)": "int64"})]))
    'migrates: max(n) begins with the next event'
    >>> str(compare_layouts([old], [StateLayout("aggregate", {"window": "20s"}, {"count(*)": "int64"})]))
    'starts anew: the window of aggregate was 10s and is 20s'
    """
    if len(old) != len(new):
        return StateChange("starts anew", (f"{_steps(len(new))} with state, and had {len(old)}",))
    obstacles = [sentence for pair in zip(old, new, strict=True) for sentence in _obstacles(*pair)]
    if obstacles:
        return StateChange("starts anew", tuple(obstacles))
    added = [f"{name} begins with the next event" for a, b in zip(old, new, strict=True) for name in _added(a, b)]
    return StateChange("migrates", tuple(added)) if added else StateChange("keeps")


def _steps(count: int) -> str:
    return "the pipeline has 1 step" if count == 1 else f"the pipeline has {count} steps"


def _added(old: StateLayout, new: StateLayout) -> list[str]:
    return [name for name in new.parts if name not in old.parts]


def _obstacles(old: StateLayout, new: StateLayout) -> Iterator[str]:
    """Yield why the state of one operator can't be used."""
    if old.kind != new.kind:
        yield f"{old.kind} is now {new.kind}"
        return
    for name in {**old.fixed, **new.fixed}:
        before, after = old.fixed.get(name), new.fixed.get(name)
        if before != after:
            yield f"the {name} of {new.kind} was {before or 'nothing'} and is {after or 'nothing'}"
    for name, type_ in new.parts.items():
        before = old.parts.get(name)
        if before is not None and before != type_:
            yield f"{name} in {new.kind} was {before} and is {type_}"
    if new.is_rigid:
        changed = sorted(old.parts.keys() ^ new.parts.keys())
        if changed:
            yield f"the events that {new.kind} keeps have other attributes: {', '.join(changed)}"


# Helpers for declarations -------------------------------------------------------------


def keys_text(names: Iterable[str], schema: Schema) -> str:
    """Return key attributes with their types: the keys of a state are texts of their values."""
    return ", ".join(f"{name} ({type_text(name, schema)})" for name in names)


def type_text(name: str | None, schema: Schema) -> str:
    """Return the type of an attribute as text; empty for no attribute."""
    attribute = None if name is None else schema.root.get(name)
    return "" if attribute is None else str(attribute.type)


def event_parts(schema: Schema) -> dict[str, str]:
    """Return the parts of a state that holds whole events."""
    return {attribute.name: str(attribute.type) for attribute in schema.root}
