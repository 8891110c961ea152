"""Changes of definitions as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def change_lines(changes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line per stream and service; `changes` are those that `apply` or its HTTP call returned.

    >>> state = {"effect": "migrates", "reasons": ["max(n) begins with the next event"]}
    >>> changes = {"added": {}, "changed": {"flow": 2}, "removed": {}, "unchanged": {"raw": 1}}
    >>> changes["states"] = {"flow": state}
    >>> print(*change_lines(changes), sep="\\n")
    changed    flow  version 2; its state migrates: max(n) begins with the next event
    unchanged  raw  version 1
    """
    for word in ("added", "changed", "removed", "unchanged"):
        for name, version in changes[word].items():
            state = changes.get("states", {}).get(name)
            yield f"{word:<9}  {name}  version {version}{'' if state is None else _state_text(state)}"


def _state_text(state: Mapping[str, Any]) -> str:
    """Return what becomes of the state of a service, for the end of its line."""
    reasons = "; ".join(state["reasons"])
    return f"; its state {state['effect']}{': ' * bool(reasons)}{reasons}"
