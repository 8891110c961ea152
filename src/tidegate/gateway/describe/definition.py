"""Decides which parts of a definition a caller sees.

Providers who see all of a service and its inputs see the whole definition. Other callers see its
promises: constraints, quality, description. Passwords are never shown, even if one was stored
before they were refused.
"""

from __future__ import annotations

from typing import Any

from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.gateway import Gateway
from tidegate.services import Service, Stream, to_dict
from tidegate.services.redaction import redacted

REMOTE_KEYS = ("qos", "retention", "properties", "categories", "themes", "description")
"""Keys that are known for a service of another broker."""
PARTIAL_KEYS = ("qos", "properties", "categories", "themes", "description")
"""Keys for callers who do not see all attributes. The other keys name attributes."""
CONSUMER_KEYS = (*PARTIAL_KEYS, "constraints", "on_violation", "on_late", "terms", "retention")
"""Keys for all other callers: without inputs, pipeline, masks and access."""
MASKED_ERROR = "the service failed; its providers see why"


def is_transparent(gateway: Gateway, caller: Caller, service: Service) -> bool:
    """True if a caller may see the pipeline of a service: a provider who sees all of it and of its inputs."""
    if not caller.may("define") or service.name in gateway.remotes:
        return False
    return all(gateway.policies.sees_whole(caller, name) for name in (service.name, *service.inputs))


def shown_service(gateway: Gateway, caller: Caller, name: str, service: Service) -> dict[str, Any]:
    """Return the visible part of a service's definition."""
    definition: dict[str, Any] = redacted(to_dict(service))
    keys: tuple[str, ...]
    if name in gateway.remotes:
        keys = REMOTE_KEYS
    elif gateway.policies.withheld(caller, name):
        keys = PARTIAL_KEYS
    elif is_transparent(gateway, caller, service):
        return definition
    else:
        keys = CONSUMER_KEYS
    return {key: value for key, value in definition.items() if key in keys}


def shown_stream(caller: Caller, stream: Stream) -> dict[str, Any]:
    """Return the visible part of a raw stream's definition. Only providers see its source and policy."""
    definition: dict[str, Any] = redacted(to_dict(stream))
    if caller.may("define"):
        return definition
    return {key: value for key, value in definition.items() if key not in ("source", "access")}


def shown_status(status: dict[str, Any] | None, *, transparent: bool) -> dict[str, Any] | None:
    """Return the visible part of a service's status. Errors name parts of the pipeline, so few callers see them."""
    if status is None or transparent:
        return status
    shown = {**status, "reason": ""} if "reason" in status else dict(status)
    if shown.get("error"):
        shown["error"] = MASKED_ERROR
    return shown
