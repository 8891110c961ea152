"""Additional inputs of `merge` and `join`: streams or services, each with a filter of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.model import Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import OperatorInputs
from tidegate.services.operators.filter import FilterOperator, read_filter, write_filter
from tidegate.services.operators.inference import note_filter
from tidegate.services.operators.settings import required_setting, without_empty

_EXPECTED = "streams or services, such as [gps_b] or [{from: gps_c, filter: 'speed > 0'}]"


@dataclass(frozen=True)
class Branch:
    """One more input of a merge or join."""

    stream: str
    filter: FilterOperator | None = None
    """Which of its events are read; None: all."""


def read_branches(spot: Spot) -> tuple[Branch, ...]:
    """Read the list under `with`; one input may stand without a list."""
    if isinstance(spot.value, str | Mapping):
        return (_read_branch(spot),)
    branches = tuple(map(_read_branch, spot.items(_EXPECTED)))
    if not branches and spot.value == []:
        spot.refuse(_EXPECTED)
    return branches


def _read_branch(spot: Spot) -> Branch:
    if not isinstance(spot.value, Mapping):
        return Branch(spot.text("the name of a stream or service, or {from: name, filter: ...}"))
    settings = spot.entries(("from", "filter"), "a stream or service, such as {from: gps_b, filter: 'speed > 0'}")
    stream = required_setting(settings, "from", spot).text("the name of a stream or service")
    return Branch(stream, read_filter(settings["filter"]) if "filter" in settings else None)


def write_branches(branches: tuple[Branch, ...]) -> list[Any]:
    """Return inputs in the form that `read_branches` takes."""
    return [
        branch.stream
        if branch.filter is None
        else {"from": branch.stream, **without_empty(filter=write_filter(branch.filter))}
        for branch in branches
    ]


def all_inputs(branches: tuple[Branch, ...], inputs: OperatorInputs, spot: Spot) -> list[tuple[str, Schema]]:
    """Return name and schema of the main inputs and of all branches; reports bad filters of branches.

    `spot` is that of the operator. An unknown stream is left out: the check of the service reports it.
    """
    streams = list(inputs.main)
    for n, branch in enumerate(branches):
        schema = inputs.streams.get(branch.stream)
        if schema is None:
            continue
        streams.append((branch.stream, schema))
        if branch.filter is not None:
            at = spot.at("with", None).at(n, None).at("filter", None)
            note_filter(branch.filter.text, branch.filter.params, schema, at)
    return streams
