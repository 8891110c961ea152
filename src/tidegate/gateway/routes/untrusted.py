"""Applies definitions that arrive over HTTP. They may use only what the profile allows to their sender."""

from __future__ import annotations

from tidegate.gateway.auth.audience import is_among
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.auth.changes import CallerGuard
from tidegate.gateway.gateway import Gateway
from tidegate.registry import Changes
from tidegate.services import Definitions
from tidegate.services.trust import Allowed, admit


def apply_untrusted(
    gateway: Gateway,
    caller: Caller,
    definitions: Definitions,
    *,
    force: bool = False,
    prune: bool = False,
    backfill: bool = False,
) -> Changes:
    """Apply a caller's definitions to the registry. Blocks: reads files, and waits for the database.

    Imports no code of the definitions. Raises a `DefinitionError` that lists everything the caller may not use, and a
    `Problem` if the caller may not make the change.
    """
    allowed = allowed_to(gateway, caller)
    admitted, guard = admit(definitions, allowed), CallerGuard(caller, allowed)
    return gateway.registry.apply(admitted, force=force, prune=prune, backfill=backfill, origin="remote", guard=guard)


def remove_untrusted(gateway: Gateway, caller: Caller, name: str, *, force: bool = False) -> None:
    """Remove a stream or service for a caller. Blocks: waits for the database."""
    gateway.registry.remove(name, force=force, guard=CallerGuard(caller, allowed_to(gateway, caller)))


def allowed_to(gateway: Gateway, caller: Caller) -> Allowed:
    """Return the functions, folders and connections of the profile that a caller may use."""
    return gateway.resources.allowed(caller.may("operate"), lambda audience: is_among(caller, audience))
