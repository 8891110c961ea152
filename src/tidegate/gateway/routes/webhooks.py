"""Webhooks: their secrets, their dead letters, and how to enable them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request

from tidegate.delivery.encoding import Encoding
from tidegate.errors import DefinitionProblem, SubscriptionError
from tidegate.gateway.auth.callers import caller_of
from tidegate.gateway.auth.owners import renewed
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.routes.subscriptions import Id, describe, document, found_for
from tidegate.registry import DeadLetter, RegisteredSubscription, Registry
from tidegate.subscriptions import MAX_SECRETS, SubscriptionRecord, Webhook, new_secret

MAX_LETTERS = 1_000
"""Dead letters in one request or response."""


router = APIRouter(prefix="/v1", tags=["webhooks"])


@router.post("/subscriptions/{id}/secret", summary="Make a new secret; older ones sign too until dropped")
async def _rotate(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    record, webhook, version = await _webhook_of(gateway, request, id_)
    if len(webhook.secrets) >= MAX_SECRETS:
        detail = f"{id_!r} has {len(webhook.secrets)} secrets: drop the old ones with DELETE first"
        raise HttpProblem(409, "conflict", "The subscription won't do that", detail)
    secrets = (new_secret(), *webhook.secrets)
    await _set_secrets(gateway, record, webhook, secrets, version)
    return {"secret": secrets[0], "secrets": len(secrets)}


@router.delete("/subscriptions/{id}/secret", summary="Drop all secrets but the newest")
async def _drop(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    record, webhook, version = await _webhook_of(gateway, request, id_)
    await _set_secrets(gateway, record, webhook, webhook.secrets[:1], version)
    return {"secrets": 1}


@router.post("/subscriptions/{id}/enable", summary="Deliver again, from the cursor on")
async def _enable(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    before = await found_for(gateway, request, id_)
    record = renewed(before.subscription, caller_of(request), gateway.access, datetime.now(UTC))
    obstacle = gateway.owners.lapsed(record, datetime.now(UTC))
    if obstacle is not None and record.push_target is not None:
        raise HttpProblem(409, "conflict", "The subscription won't do that", obstacle)
    changed = await gateway.durable.change(partial(_enabled, record, before.version))
    return describe(changed, gateway.durable.cursor(changed))


@router.get("/subscriptions/{id}/dead-letters", summary="What could not be delivered, the oldest first")
async def _letters(
    gateway: Serving,
    request: Request,
    id_: Id,
    after: Annotated[int, Query(ge=0, lt=2**63, description="The id of the last one that was read.")] = 0,
    limit: Annotated[int, Query(alias="max", ge=1, le=MAX_LETTERS)] = 100,
) -> dict[str, Any]:
    registered = await found_for(gateway, request, id_)
    _need_service(gateway, request, registered.subscription)
    some = await gateway.durable.ask(lambda registry: registry.dead_letters(id_, after, limit))
    encoding = gateway.durable.encoding(registered.subscription, caller_of(request))
    return {"dead_letters": [_shown(letter, registered.subscription.service, encoding) for letter in some]}


@router.post("/subscriptions/{id}/dead-letters/redeliver", summary="Send dead letters once more, now")
async def _redeliver(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    record = (await found_for(gateway, request, id_)).subscription
    if record.push_target is None:
        detail = f"{id_!r} is not delivered by webhook, nor to a topic"
        raise HttpProblem(409, "conflict", "The subscription won't do that", detail)
    _need_service(gateway, request, record)
    obstacle = gateway.durable.obstacle(record)
    if obstacle is not None:
        raise HttpProblem(409, "conflict", "The subscription won't do that", obstacle.reason)
    ids = _ids(await document(request, {"ids": "all"}))
    letters = await gateway.durable.ask(lambda registry: _letters_with(registry, id_, ids))
    missing = sorted((ids or set()) - {letter.id for letter in letters})
    if missing:
        detail = f"{id_!r} has no dead letter {', '.join(map(str, missing))}"
        raise HttpProblem(404, "not-found", "There is no such thing", detail)
    done = await gateway.durable.redeliver(record, letters)
    return {
        "delivered": done.taken,
        "failed": [{"id": id_, "error": error} for id_, error in done.failed],
        "untried": done.untried,
    }


async def _webhook_of(gateway: Gateway, request: Request, id_: str) -> tuple[SubscriptionRecord, Webhook, int]:
    registered = await found_for(gateway, request, id_)
    deliver = registered.subscription.deliver
    if not isinstance(deliver, Webhook):
        detail = f"{id_!r} is not delivered by webhook"
        raise HttpProblem(409, "conflict", "The subscription won't do that", detail)
    return registered.subscription, deliver, registered.version


def _need_service(gateway: Gateway, request: Request, record: SubscriptionRecord) -> None:
    """Raise unless the caller sees the service. If it was removed, there is no policy: only operators may continue."""
    if not caller_of(request).may("operate"):
        gateway.policies.need(caller_of(request), record.service)


async def _set_secrets(
    gateway: Gateway, record: SubscriptionRecord, webhook: Webhook, secrets: tuple[str, ...], version: int
) -> None:
    new = replace(record, deliver=replace(webhook, secrets=secrets))
    await gateway.durable.change(lambda registry: registry.change_subscription(new, version))


def _enabled(record: SubscriptionRecord, version: int, registry: Registry) -> RegisteredSubscription:
    registry.change_subscription(record, version)
    return registry.enable(record.id)


def _ids(body: Any) -> set[int] | None:
    """Return the ids of the dead letters that a request names; None means all."""
    ids = body.get("ids") if isinstance(body, Mapping) and set(body) == {"ids"} else None
    if ids == "all":
        return None
    if not isinstance(ids, list) or not ids or not all(type(id_) is int and 0 <= id_ < 2**63 for id_ in ids):
        detail = f"expected {{'ids': [1, 2]}} or {{'ids': 'all'}}, not {body!r:.60}"
        raise SubscriptionError([DefinitionProblem("ids", detail)])
    if len(ids) > MAX_LETTERS:
        raise SubscriptionError([DefinitionProblem("ids", f"expected at most {MAX_LETTERS:,}, not {len(ids):,}")])
    return set(ids)


def _letters_with(registry: Registry, id_: str, ids: set[int] | None) -> list[DeadLetter]:
    if ids is None:
        return registry.dead_letters(id_, 0, MAX_LETTERS)
    letters: list[DeadLetter] = []
    for number in sorted(ids):
        letters += [letter for letter in registry.dead_letters(id_, number - 1, 1) if letter.id == number]
    return letters


def _shown(letter: DeadLetter, service: str, encoding: Encoding) -> dict[str, Any]:
    data = encoding.encode(service, letter.record, orjson.loads(letter.record))
    return {
        "id": letter.id,
        "cursor": letter.cursor,
        "error": letter.error,
        "attempts": letter.attempts,
        "at": letter.at.isoformat(),
        "event": orjson.loads(data),
    }
