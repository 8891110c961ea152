"""Definitions that come by HTTP: whoever sends them, they use nothing but what the profile lists for them."""

from __future__ import annotations

from tidegate.gateway.callers import Caller
from tidegate.gateway.changes import CallerGuard
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.policy import is_among
from tidegate.registry import AppliedChanges
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
) -> AppliedChanges:
    """Apply a caller's definitions to the registry. Blocks: looks at files, and waits for the database.

    Imports nothing. Raises a `DefinitionError` with everything in them that is not open to the caller, and a `Problem`
    where the caller may not make the change.
    """
    allowed = allowed_to(gateway, caller)
    admitted, guard = admit(definitions, allowed), CallerGuard(caller, allowed)
    return gateway.registry.apply(admitted, force=force, prune=prune, backfill=backfill, origin="remote", guard=guard)


def remove_untrusted(gateway: Gateway, caller: Caller, name: str, *, force: bool = False) -> None:
    """Remove a stream or service for a caller. Blocks: waits for the database."""
    gateway.registry.remove(name, force=force, guard=CallerGuard(caller, allowed_to(gateway, caller)))


def allowed_to(gateway: Gateway, caller: Caller) -> Allowed:
    """Return which of the profile's functions, folders and connections a caller may use."""
    return gateway.resources.allowed(caller.may("operate"), lambda audience: is_among(caller, audience))
