"""The rights of each role, and the right that each call of the API needs.

    read      services, their events, filters over them; subscribe
    append    append events to raw streams
    define    add, change and remove services and raw streams; see quarantined events
    operate   sources, links, keys, metrics, the audit log; sees and changes everything

Roles are sets of rights, not ranks: a publisher may append, but not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, get_args

from tidegate.registry import Role

Right = Literal["read", "append", "define", "operate"]

RIGHTS: Mapping[Role, frozenset[Right]] = MappingProxyType(
    {
        "consumer": frozenset({"read"}),
        "publisher": frozenset({"append"}),
        "provider": frozenset({"read", "append", "define"}),
        "admin": frozenset(get_args(Right)),
    }
)
"""The rights of each role. The broadest role is last."""

PHRASES: Mapping[Right, str] = MappingProxyType(
    {
        "read": "read services",
        "append": "put events into streams",
        "define": "change services and streams",
        "operate": "operate this broker",
    }
)
"""Descriptions of rights, for messages."""

OPERATED = ("links", "keys", "audit")
"""Parts of the API that only operators may use: `/v1/links`, `/v1/keys`, `/v1/audit`."""
READING = ("GET", "HEAD", "OPTIONS")


@lru_cache(maxsize=1024)
def rights_of(roles: frozenset[str]) -> frozenset[Right]:
    """Return all rights of some roles. Unknown roles have none.

    >>> sorted(rights_of(frozenset({"consumer", "publisher", "police"})))
    ['append', 'read']
    """
    return frozenset(right for role, rights in RIGHTS.items() if role in roles for right in rights)


def roles_with(right: Right) -> list[Role]:
    """Return the roles that have a right.

    >>> roles_with("append")
    ['publisher', 'provider', 'admin']
    """
    return [role for role, rights in RIGHTS.items() if right in rights]


def needed(method: str, path: str) -> frozenset[Right]:
    """Return the rights for a request: the caller needs one of them. An empty set allows every caller.

    >>> sorted(needed("POST", "/v1/streams/gps_taxi/events"))
    ['append']
    >>> sorted(needed("GET", "/v1/streams/gps_taxi"))
    ['append', 'read']
    """
    match path.split("/")[1:]:
        case ["metrics"]:
            return OPERATE
        case ["readyz"] | ["v1", "me"]:
            return frozenset()
        case ["v1", part, *_] if part in OPERATED:
            return OPERATE
        case ["v1", "streams", _, "events"] if method not in READING:
            return _APPEND
        case ["v1", _, _, "quarantine", *_] | ["v1", "apply"]:
            return _DEFINE
        case ["v1", "streams"] | ["v1", "streams", _] if method in READING:
            return _READ | _APPEND
        case ["v1", "streams", *_] if method not in READING:
            return _DEFINE
        case ["v1", "services", _, "subscriptions"]:
            return _READ
        case ["v1", "services", *_] if method not in READING:
            return _DEFINE
    return _READ


_READ: frozenset[Right] = frozenset({"read"})
_APPEND: frozenset[Right] = frozenset({"append"})
_DEFINE: frozenset[Right] = frozenset({"define"})
OPERATE: frozenset[Right] = frozenset({"operate"})
