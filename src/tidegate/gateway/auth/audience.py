"""Whom an access policy or the scope of a key names."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.http.problems import forbidden

ROLE = "role:"
"""The prefix of a name in a policy that means a role, such as `role:police`."""


def is_among(caller: Caller, names: Collection[str]) -> bool:
    """True if a policy names a caller, or one of their roles.

    >>> is_among(Caller("key_1", "fleet", "provider"), ["police", "role:provider"])
    True
    >>> is_among(Caller("key_1", "role:police", "consumer"), ["role:police"])
    False
    """
    if caller.id is None:
        return False
    roles = {caller.role, *caller.groups}
    return any(name[len(ROLE) :] in roles if name.startswith(ROLE) else name == caller.name for name in names)


def admits(to: str | tuple[str, ...], caller: Caller) -> bool:
    """True if the `to` of an access policy admits an authenticated caller. Does not cover `public`."""
    return caller.id is not None and (to == "keys" or is_among(caller, to))


def is_in_scope(caller: Caller, name: str) -> bool:
    """True if the key or token of a caller is valid for a service or stream."""
    return caller.services is None or name in caller.services


def need_scope(caller: Caller, name: str) -> None:
    """Raise a `Problem` (403) unless the key or token of a caller is valid for a service or stream."""
    if not is_in_scope(caller, name):
        detail = f"{caller.told} is for {', '.join(caller.services or ()) or 'no service'}, not for {name!r}"
        raise forbidden(detail)
