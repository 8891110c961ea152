"""Compiles the filters of callers. Long filters take up to tenths of a second, so they use the heavy pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.auth.view import View
from tidegate.gateway.http.executors import Executors
from tidegate.model import Schema
from tidegate.subscriptions import SubscriptionRecord, compiled

LONG_FILTER = 1_000
"""Characters. Filters of this length or more are compiled in the heavy pool; shorter ones take a few milliseconds."""

T = TypeVar("T")


async def filter_of(
    executors: Executors, view: View, text: str | None, params: Sequence[str] | None, service: str
) -> Filter | None:
    """Compile a filter over the attributes that a caller sees; None means all events."""
    return await in_turn(executors, view.caller, (text, *(params or ())), lambda: view.filter_(text, params, service))


async def compiled_of(
    executors: Executors, caller: Caller, record: SubscriptionRecord, schema: Schema, meaning: Meaning | None
) -> Filter | None:
    """Compile the filter of a durable subscription; None means all events."""
    return await in_turn(executors, caller, (record.filter, *record.params), lambda: compiled(record, schema, meaning))


async def in_turn(executors: Executors, caller: Caller, parts: Iterable[Any], call: Callable[[], T]) -> T:
    """Run a call that compiles a filter: directly if the filter is short, otherwise in the heavy pool.

    `parts` are the filter's text and parameters. A filter with `~` always uses the heavy pool, as it asks a model.
    """
    texts = [part for part in parts if isinstance(part, str)]
    if sum(map(len, texts)) < LONG_FILTER and not any("~" in text for text in texts):
        return call()
    return await executors.heavy(caller, call)
