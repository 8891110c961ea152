"""What a caller is shown of a definition.

Providers who see all of a service and of what it reads are shown how it is made.
All others are shown what it promises: constraints, quality, words. Nobody is
shown a password, also where one was stored before they were refused.
"""

from __future__ import annotations

from typing import Any

from tidegate.gateway.callers import Caller
from tidegate.gateway.gateway import Gateway
from tidegate.services import Service, Stream, to_dict
from tidegate.services.redaction import redacted

REMOTE_KEYS = ("qos", "retention", "properties", "categories", "themes", "description")
"""Keys of a definition that are known of another broker's service."""
PARTIAL_KEYS = ("qos", "properties", "categories", "themes", "description")
"""Keys that those are shown who may not see all attributes: the others name attributes."""
CONSUMER_KEYS = (*PARTIAL_KEYS, "constraints", "on_violation", "terms", "retention")
"""Keys that everybody else is shown: not what it reads, nor its pipeline, masks and access."""
MASKED_ERROR = "the service failed; its providers see why"


def is_transparent(gateway: Gateway, caller: Caller, service: Service) -> bool:
    """Say whether a caller may see how a service is made: a provider who sees all of it and of its inputs."""
    if not caller.may("define") or service.name in gateway.remotes:
        return False
    return all(gateway.policies.sees_whole(caller, name) for name in (service.name, *service.inputs))


def shown_service(gateway: Gateway, caller: Caller, name: str, service: Service) -> dict[str, Any]:
    """Write a service's definition as a caller may see it."""
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
    """Write a raw stream's definition as a caller may see it: its source and policy are for providers."""
    definition: dict[str, Any] = redacted(to_dict(stream))
    if caller.may("define"):
        return definition
    return {key: value for key, value in definition.items() if key not in ("source", "access")}


def shown_status(status: dict[str, Any] | None, *, transparent: bool) -> dict[str, Any] | None:
    """Give what is known of a running service; errors name parts of the pipeline, and are for those who see it."""
    if status is None or transparent:
        return status
    shown = {**status, "reason": ""} if "reason" in status else dict(status)
    if shown.get("error"):
        shown["error"] = MASKED_ERROR
    return shown
