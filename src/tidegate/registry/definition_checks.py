"""Checks of a change of definitions, before it is stored.

An error never names a stream or service that the caller may not see: `ChangeGuard.sees` decides, and unseen ones are
only counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.errors import BreakingChange, DefinitionError, DefinitionProblem, RegistryError
from tidegate.registry.records import DefinitionChange
from tidegate.registry.registry import ChangeGuard
from tidegate.services import Definitions, Service, Shape, Stream, check
from tidegate.services.check import examine
from tidegate.services.definitions import Origin
from tidegate.services.findings import Findings
from tidegate.services.operators.state_layout import StateChange, compare_layouts
from tidegate.services.redaction import note_secrets
from tidegate.services.trust import needs_trust
from tidegate.services.versions import breaking, breaking_for_producers


class _AllowAll:
    """The guard of the operator, who may make every change and see every name."""

    def need(self, change: DefinitionChange) -> None:
        """Allow the change."""

    def sees(self, name: str) -> bool:  # noqa: ARG002 - every name is visible
        """Return True."""
        return True


ALLOW_ALL: ChangeGuard = _AllowAll()


def refuse_secrets(definitions: Definitions) -> None:
    """Raise `DefinitionError` if a definition contains a secret in plain text."""
    findings = Findings(definitions.places)
    note_secrets(definitions, findings)
    if findings.problems:
        raise DefinitionError(findings.problems)


@dataclass(frozen=True, slots=True)
class ChangeEffects:
    """The effects of a change of definitions on existing streams, services and states."""

    forced: set[str]
    """What `force` breaks: raw streams whose producers break, services whose subscribers break, and
    everything that such a service reads directly or indirectly."""
    states: Mapping[str, StateChange]
    """The effect on the state of each service with state whose definition or input changes."""


def check_change(
    before: Definitions,
    applied: Definitions,
    removed: set[str],
    *,
    force: bool,
    backfill: bool,
    imported: Collection[str],
    guard: ChangeGuard,
) -> ChangeEffects:
    """Check the definitions after a change, and return its effects. Stores nothing.

    `applied` are the definitions to add or change, `removed` the names to remove. `before` are all stored definitions.
    `backfill`: the applied services read all of their inputs again, so nothing is lost with their states.
    `imported` are the services whose custom functions are imported for the check.

    Raises `RegistryError` if something reads a removed definition or if an unseen service would break,
    `DefinitionError` if the definitions are not valid together, and `BreakingChange` if subscribers or
    producers would break, or a service would lose its state, and `force` is not set.
    """
    after = Definitions(
        _without({**before.streams, **applied.streams}, removed | {*applied.services}),
        _without({**before.services, **applied.services}, removed | {*applied.streams}),
        applied.places,
    )
    for name in sorted(removed):
        refuse_if_read(name, after, guard)
    shapes_before, _ = examine(before, functions=())
    # A stored service may have become invalid by the rules of this version. It must not block all other changes.
    invalid = {name for name in before.services if name not in shapes_before and name not in applied.services}
    after = replace(after, services=_without(after.services, invalid))
    shapes = _check_all(after, imported, guard)
    broken = {
        name: sentences
        for name, shape in shapes.items()
        if name in shapes_before and (sentences := breaking(shapes_before[name].output, shape.output))
    }
    streams = {
        name: sentences
        for name, stream in applied.streams.items()
        if name in before.streams and (sentences := breaking_for_producers(before.streams[name].schema, stream.schema))
    }
    restarted = {*applied.services} if backfill else set()
    states = {
        name: compare_layouts(shapes_before[name].layouts, shape.layouts)
        for name, shape in shapes.items()
        if name in shapes_before and name not in restarted and shapes_before[name].layouts
    }
    lost = {name: change.reasons for name, change in states.items() if change.effect == "starts anew"}
    unseen = {name for name in (*broken, *lost) if not guard.sees(name)}
    if unseen:
        raise _breaks_unseen(len(unseen))
    if (broken or streams or lost) and not force:
        raise BreakingChange(broken, streams, lost)
    changed = _changed(before, after, shapes_before, shapes)
    shown = {name: change for name, change in states.items() if name in changed and guard.sees(name)}
    return ChangeEffects(_with_inputs([*broken, *streams], after), shown)


def _changed(before: Definitions, after: Definitions, old: Mapping[str, Shape], new: Mapping[str, Shape]) -> set[str]:
    """Return the services that get another definition, or an input with another schema."""
    streams = {
        name for name, stream in after.streams.items() if name in before.streams and before.streams[name] != stream
    }
    outputs = {name for name in new if name in old and old[name].output != new[name].output}
    return {
        name
        for name, service in after.services.items()
        if before.services.get(name) != service
        or not streams.isdisjoint(service.inputs)
        or not outputs.isdisjoint(service.inputs)
    }


def refuse_if_read(name: str, others: Definitions, guard: ChangeGuard) -> None:
    """Raise `RegistryError` if one of `others` reads a stream or service that is to be removed."""
    readers = [service.name for service in others.services.values() if name in service.inputs]
    if readers:
        seen = [reader for reader in readers if guard.sees(reader)]
        unseen = _count_unseen(len(readers) - len(seen))
        subject = " and ".join(part for part in (", ".join(seen), unseen) if part)
        raise RegistryError(f"{name!r} can't be removed: {subject} read{'s' * (len(readers) == 1)} it")


def trusted_names(definitions: Definitions, origin: Origin) -> set[str]:
    """Return the names of definitions that only the operator may apply; empty unless `origin` is the operator."""
    if origin != "operator":
        return set()
    all_given: tuple[Stream | Service, ...] = (*definitions.streams.values(), *definitions.services.values())
    return {definition.name for definition in all_given if needs_trust(definition)}


def _check_all(after: Definitions, functions: Collection[str], guard: ChangeGuard) -> dict[str, Shape]:
    """Check definitions as a whole. Problems of services that the caller does not see are counted, not shown."""
    try:
        return check(after, functions=functions, hints=guard.sees)
    except DefinitionError as error:
        seen = [problem for problem in error.problems if guard.sees(_subject(problem, after))]
        if len(seen) == len(error.problems):
            raise
        if seen:
            raise DefinitionError(seen) from None
        raise _breaks_unseen(len({_subject(problem, after) for problem in error.problems})) from None


def _subject(problem: DefinitionProblem, definitions: Definitions) -> str:
    """Return the name of the stream or service that a problem is in."""
    _, _, rest = problem.path.partition(".")
    names = [name for name in (*definitions.streams, *definitions.services) if f"{rest}.".startswith(f"{name}.")]
    return max(names, key=len, default=rest)


def _breaks_unseen(count: int) -> RegistryError:
    return RegistryError(f"this breaks {_count_unseen(count)} downstream: ask an operator to make the change")


def _count_unseen(count: int) -> str:
    return "" if count == 0 else f"{count} service{'s' * (count != 1)} that you may not see"


def _with_inputs(names: Iterable[str], definitions: Definitions) -> set[str]:
    """Return some services and everything that they read, directly or indirectly."""
    upstream: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name not in upstream:
            upstream.add(name)
            stack += definitions.services[name].inputs if name in definitions.services else ()
    return upstream


def _without(definitions: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: definition for name, definition in definitions.items() if name not in names}
