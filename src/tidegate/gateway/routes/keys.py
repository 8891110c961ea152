"""API keys: admins without a limit to some services create, rotate and revoke them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, cast, get_args

from fastapi import APIRouter, Path, Request

from tidegate.errors import did_you_mean
from tidegate.gateway.auth.callers import Caller, caller_of
from tidegate.gateway.auth.key_documents import described
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.bodies import json_of
from tidegate.gateway.http.problems import HttpProblem, forbidden
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.settings import RATES, Quotas
from tidegate.model import units
from tidegate.registry import Key, Role
from tidegate.registry.keys import MAX_NAME

DEFAULT_OVERLAP = "24h"
"""How long the old secret stays valid after a rotation, if the request does not say."""
MAX_LIFETIME_S = 100 * 365 * 86_400.0
MAX_SERVICES = 1_000
"""Services and streams that one key may name."""
_QUOTAS = tuple(field.name for field in fields(Quotas))

Id = Annotated[str, Path(alias="id")]


router = APIRouter(prefix="/v1", tags=["keys"])


@router.get("/keys", summary="All API keys, without their secrets")
async def _keys(gateway: Serving, request: Request) -> dict[str, Any]:
    _need_operator(caller_of(request))
    keys = await asyncio.get_running_loop().run_in_executor(None, gateway.registry.keys)
    return {"keys": [_describe(gateway, key) for key in keys.values()]}


@router.post("/keys", status_code=201, summary="Create an API key; its secret is shown this once")
async def _create(gateway: Serving, request: Request) -> dict[str, Any]:
    _need_known(caller_of(request))
    body = _read(await json_of(request), ("name", "role", "services", "streams", "expires", "quotas"))
    name, role = _name(body.get("name")), _role(body.get("role", "consumer"))
    services = _names(body, "services", "streams")
    expires_at, quotas = _expiry(body.get("expires")), _quotas(body.get("quotas"))
    call = partial(gateway.registry.create_key, name, role, services, expires_at, quotas)
    key, secret = await _change(gateway, call)
    return {**_describe(gateway, key), "secret": secret}


@router.post(
    "/keys/{id}/rotate",
    summary="Rotate the secret of a key; the new one is shown once, the old one stays valid for a while",
)
async def _rotate(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    _need_known(caller_of(request))
    body = _read(await json_of(request) if await request.body() else {}, ("overlap", "expires"))
    overlap_s = _length(body.get("overlap", DEFAULT_OVERLAP), "overlap", "24h, or 0s to end the old secret now")
    call = partial(gateway.registry.rotate_key, id_, overlap_s, _expiry(body.get("expires")))
    key, secret = await _change(gateway, call)
    return {**_describe(gateway, key), "secret": secret}


@router.delete("/keys/{id}", summary="Revoke a key; it stays in the list")
async def _revoke(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    caller = caller_of(request)
    _need_known(caller)
    if caller.id == id_:
        detail = (
            f"{caller.told} is the one that this request is made with; revoke it with another admin's key, or on "
            f"the gateway's machine: tidegate keys revoke {id_}"
        )
        raise HttpProblem(409, "conflict", "A key can't revoke itself", detail)
    return _describe(gateway, await _change(gateway, partial(gateway.registry.revoke_key, id_)))


async def _change(gateway: Gateway, call: partial[Any]) -> Any:
    """Change keys in the registry, and apply the change in this gateway at once. Returns the result of `call`."""
    result = await asyncio.get_running_loop().run_in_executor(None, call)
    await gateway.sweep.read_keys()
    gateway.callers.forget()
    return result


def _describe(gateway: Gateway, key: Key) -> dict[str, Any]:
    return described(key, datetime.now(UTC), gateway.sign_ins.uses.get(key.id))


def _need_operator(caller: Caller) -> None:
    """Raise `HttpProblem` (403) unless a caller is an admin for all services: others could extend their own rights."""
    if caller.role != "admin" or caller.services is not None:
        detail = f"{caller.told} is for some services only, and keys can open all; use an admin's key without services"
        raise forbidden(detail)


def _need_known(caller: Caller) -> None:
    """Raise `HttpProblem` (403) for a caller without credentials: their keys would stay valid if keys were required."""
    _need_operator(caller)
    if caller.id is None:
        detail = (
            "this gateway requires no keys, so it does not know its callers; manage keys on its machine with tidegate "
            "keys create|rotate|revoke --data FOLDER, or set access: {required: true} in its profile"
        )
        raise forbidden(detail)


def _bad(pointer: str, detail: str) -> HttpProblem:
    return HttpProblem(422, "bad-key", "The key can't be made so", detail, [{"pointer": pointer, "detail": detail}])


def _read(body: Any, fields_: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise _bad("", f"expected an object with {', '.join(fields_)}")
    for field in body:
        if field not in fields_:
            hint = did_you_mean(field, fields_) or f"; expected {', '.join(fields_)}"
            raise _bad(field[:80], f"unknown field {field!r:.80}{hint}")
    return {field: value for field, value in body.items() if value is not None}


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME or not value.isprintable():
        raise _bad("name", f"name: expected a text of 1 to {MAX_NAME} printable characters, not {value!r:.80}")
    return value


def _role(value: Any) -> Role:
    if value not in get_args(Role):
        raise _bad("role", f"role: expected one of {', '.join(get_args(Role))}, not {value!r:.80}")
    return cast(Role, value)


def _names(body: Mapping[str, Any], *keys: str) -> list[str] | None:
    """Return the services and streams that a key is for; None means all."""
    all_names: list[str] = []
    for key in keys:
        names = body.get(key, [])
        is_list = isinstance(names, list) and all(isinstance(name, str) and 0 < len(name) <= 128 for name in names)
        if not is_list or len(names) > MAX_SERVICES:
            raise _bad(key, f"{key}: expected a list of at most {MAX_SERVICES:,} names, not {names!r:.80}")
        all_names += names
    return all_names if any(key in body for key in keys) else None


def _length(value: Any, name: str, example: str) -> float:
    length_s = units.seconds(value) if isinstance(value, str) else None
    if length_s is None:
        raise _bad(name, f"{name}: expected a length of time such as {example}, not {value!r:.80}")
    return length_s


def _expiry(value: Any) -> datetime | None:
    if value is None:
        return None
    length_s = _length(value, "expires", "90d")
    if not 0 < length_s <= MAX_LIFETIME_S:
        raise _bad("expires", f"expires: expected a length of time above 0 and up to 100 years, not {value!r:.80}")
    return datetime.now(UTC) + timedelta(seconds=length_s)


def _quotas(value: Any) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _bad("quotas", f"quotas: expected numbers by name, not {value!r:.80}")
    for name, limit in value.items():
        if name not in _QUOTAS:
            raise _bad("quotas", f"quotas: {name!r:.80} is no quota; expected one of {', '.join(_QUOTAS)}")
        is_number = type(limit) is int or (name in RATES and type(limit) is float)
        if not is_number or not 0 < limit < 2**53:
            what = "a number above 0" if name in RATES else "a whole number above 0"
            raise _bad(f"quotas.{name}", f"quotas.{name}: expected {what}, not {limit!r:.80}")
    return value
