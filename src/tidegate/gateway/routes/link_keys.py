"""Pinned keys of other brokers: whose events and offers must be signed, and with which keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request

from tidegate.errors import FederationError, NotRegistered, did_you_mean
from tidegate.federation.link import Federation
from tidegate.federation.link.keys import OriginKey, key_set, read_key_set
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.routes.dependencies import Serving, federation_of

router = APIRouter(prefix="/v1", tags=["links"])


@router.get("/links/{broker}/keys", summary="The pinned keys of a broker")
async def _keys_of(gateway: Serving, broker: str) -> dict[str, Any]:
    pinned = federation_of(gateway).trust.pinned
    if broker not in pinned:
        raise NotRegistered(f"no keys of {broker!r:.60} are pinned{did_you_mean(broker, pinned)}")
    return described_keys(broker, pinned[broker])


@router.put("/links/{broker}/keys", summary="Pin the public keys of a broker, linked or not")
async def _pin(gateway: Serving, broker: str, request: Request) -> dict[str, Any]:
    federation = _federation_to_change(gateway, broker)
    keys = read_key_set(await request.body(), f"the keys of {broker!r:.60}", private=False)
    call = partial(gateway.registry.trust_origin, broker, key_set(keys))
    await asyncio.get_running_loop().run_in_executor(None, call)
    await federation.reload_links()
    return described_keys(broker, federation.trust.keys(broker))


@router.delete("/links/{broker}/keys", status_code=204, summary="Remove the pinned keys of a broker")
async def _unpin(gateway: Serving, broker: str) -> None:
    federation = _federation_to_change(gateway, broker)
    await asyncio.get_running_loop().run_in_executor(None, gateway.registry.distrust_origin, broker)
    await federation.reload_links()


def _federation_to_change(gateway: Gateway, broker: str) -> Federation:
    """Refuse to change keys that the profile pins: they would come back with the next start."""
    federation = federation_of(gateway)
    if broker in federation.settings.origins:
        raise FederationError(f"the keys of {broker!r} are pinned in the profile: change them there")
    return federation


def described_keys(name: str, keys: Sequence[OriginKey]) -> dict[str, Any]:
    """Return the pinned keys of a broker, as answers have them."""
    return {"name": name, "keys": [key.jwk() for key in keys]}
