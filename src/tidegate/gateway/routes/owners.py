"""Owners of durable subscriptions: renew the rights of a token, and adopt subscriptions without an owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request

from tidegate.errors import DefinitionProblem, SubscriptionError
from tidegate.gateway.auth.callers import Caller, caller_of
from tidegate.gateway.auth.owners import grant_of, is_owner, renewed
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.problems import HttpProblem, forbidden
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.routes.subscriptions import Id, describe, document, found_for
from tidegate.registry import RegisteredSubscription
from tidegate.subscriptions import SubscriptionRecord, compiled

router = APIRouter(prefix="/v1", tags=["subscriptions"])


@router.post("/subscriptions/{id}/renew", summary="Deliver by the rights that its owner has now, and for longer")
async def _renew(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    before, caller = await found_for(gateway, request, id_), caller_of(request)
    if not is_owner(caller, before.subscription):
        detail = f"only its owner can renew {id_!r}; an admin can adopt it: POST /v1/subscriptions/{id_}/adopt"
        raise forbidden(detail)
    return await _store(gateway, before, renewed(before.subscription, caller, gateway.access, datetime.now(UTC)))


@router.post("/subscriptions/{id}/adopt", summary="Make the caller, or an API key, the owner (admins only)")
async def _adopt(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    caller = caller_of(request)
    if not caller.may("operate"):
        detail = f"{caller.told} is a {caller.role}'s, and only an admin can adopt a subscription"
        raise forbidden(detail)
    named = _owner(await document(request, {}))
    before = await found_for(gateway, request, id_)
    await gateway.sweep.read_keys()
    record = _adopted(gateway, before.subscription, caller, named)
    return await _store(gateway, before, record)


async def _store(gateway: Gateway, before: RegisteredSubscription, record: SubscriptionRecord) -> dict[str, Any]:
    """Store a subscription with a new owner or new rights. Raises if they do not cover its filter."""
    await gateway.sweep.read_keys()
    if record.push_target is not None:
        schema = gateway.policies.schema(gateway.owners.owner(record), record.service)
        compiled(record, schema, gateway.policies.meaning(record.service))
    version = before.version
    changed = await gateway.durable.change(lambda registry: registry.change_subscription(record, version, resume=True))
    return describe(changed, gateway.durable.cursor(changed))


def _owner(body: Any) -> str | None:
    if not isinstance(body, Mapping) or not set(body) <= {"owner"}:
        raise SubscriptionError([DefinitionProblem("", f"expected {{owner: 'key_...'}} or nothing, not {body!r:.50}")])
    owner = body.get("owner")
    if owner is not None and not isinstance(owner, str):
        raise SubscriptionError([DefinitionProblem("owner", f"expected the id of an API key, not {owner!r:.60}")])
    return owner


def _adopted(gateway: Gateway, record: SubscriptionRecord, caller: Caller, named: str | None) -> SubscriptionRecord:
    """Return a record with another owner: a usable API key, or the caller."""
    now = datetime.now(UTC)
    if named is None or named == caller.id:
        if caller.id is None:
            detail = "no keys are required here, so that the caller is not known: name the owner, {'owner': 'key_...'}"
            raise HttpProblem(409, "conflict", "The subscription won't do that", detail)
        return replace(record, owner=caller.id, grant=grant_of(caller, gateway.access, now))
    key = gateway.owners.keys.get(named)
    problem = f"there is no API key with the id {named!r:.60}" if key is None else key.problem(now)
    if problem is not None:
        raise SubscriptionError([DefinitionProblem("owner", problem)])
    return replace(record, owner=named, grant=None)
