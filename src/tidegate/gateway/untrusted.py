"""Definitions that come by HTTP: whoever sends them, they use nothing but what the profile lists for them."""

from __future__ import annotations

from tidegate.gateway.callers import Caller
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.policy import is_among
from tidegate.registry import Changes
from tidegate.services import Definitions
from tidegate.services.trust import admit


def apply_untrusted(
    gateway: Gateway,
    caller: Caller,
    definitions: Definitions,
    *,
    force: bool = False,
    prune: bool = False,
    backfill: bool = False,
) -> Changes:
    """Apply a caller's definitions to the registry. Blocks: looks at files, and waits for the database.

    Imports nothing. Raises a `DefinitionError` with everything in them that is not open to the caller.
    """
    gateway.policies.need_change(caller, definitions, prune=prune)
    allowed = gateway.resources.allowed(caller.role == "admin", lambda audience: is_among(caller, audience))
    admitted = admit(definitions, allowed)
    return gateway.registry.apply(admitted, force=force, prune=prune, backfill=backfill, origin="remote")
