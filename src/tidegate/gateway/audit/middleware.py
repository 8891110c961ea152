"""Records the changes of callers in the audit log, for all routes in one place.

The response to a change is sent after its record is in the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.errors import TidegateError
from tidegate.gateway.audit.log import Result, address_of
from tidegate.gateway.auth.access import IDENTIFIED
from tidegate.registry import DefinitionVersion, Registry

if TYPE_CHECKING:
    from tidegate.gateway.gateway import Gateway

MAX_NAMES = 50
"""Definitions of one `apply` that are named in the record, and whose policy changes have their own records."""
_CHANGES = ("added", "changed", "removed")
_NO_CHANGE = frozenset({"explain", "backtest", "events", "discover", "filters", "semantics"})
"""First or last parts of paths whose POST changes nothing."""
_VERBS = {("POST", "secret"): "rotate-secret", ("DELETE", "secret"): "drop-secrets", ("POST", "dead-letters"): "resend"}


class Action(NamedTuple):
    """The audited action of a request."""

    name: str
    target: str | None = None


def action_of(method: str, path: str) -> Action | None:
    """Return the audited action of a request; None if it changes nothing that is audited.

    >>> action_of("PUT", "/v1/services/gps")
    Action(name='service.put', target='gps')
    >>> action_of("POST", "/v1/streams/gps/events") is None
    True
    """
    if method in ("GET", "HEAD", "OPTIONS") or not path.startswith("/v1/"):
        return None
    parts = path.split("/")[2:]
    match method, parts:
        case "POST", ["streams", _, "events"] | ["subscriptions", _, "ack"]:
            return None
        case "POST", ["apply"]:
            return Action("definitions.apply")
        case "POST", ["services", name, "subscriptions"]:
            return Action("subscription.create", name)
        case _, ["services" | "streams" as kind, name]:
            return Action(f"{kind[:-1]}.{'remove' if method == 'DELETE' else 'put'}", name)
        case _, ["subscriptions", id_]:
            return Action(f"subscription.{'remove' if method == 'DELETE' else 'change'}", id_)
        case _, ["subscriptions", id_, verb, *_]:
            return Action(f"subscription.{_VERBS.get((method, verb), verb)}", id_)
        case "POST", ["links"]:
            return Action("link.add")
        case _, ["links", name]:
            return Action(f"link.{'remove' if method == 'DELETE' else 'change'}", name)
        case _, ["links", name, part, *_]:
            return Action(f"link.{part}.{'remove' if method == 'DELETE' else 'put'}", name)
        case "POST", ["keys"]:
            return Action("key.create")
        case "POST", ["keys", id_, verb]:
            return Action(f"key.{verb}", id_)
        case "DELETE", ["keys", id_]:
            return Action("key.revoke", id_)
        case _, [_, name, "quarantine", *_]:
            return Action("quarantine.replay", name)
    changes_nothing = method == "POST" and (parts[0] in _NO_CHANGE or parts[-1] in _NO_CHANGE)
    return None if changes_nothing else Action(f"call {method}", path)


class Audited:
    """ASGI middleware outside `AccessControl`: records changes and refusals."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._gateway = app, gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Delay the response to a change until its record is written."""
        action = action_of(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if action is None:
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []

        async def hold(message: Message) -> None:
            messages.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await self._record(action, scope, messages)
                for held in messages:
                    await send(held)
                messages.clear()

        try:
            await self._app(scope, receive, hold)
        except Exception:
            self._note(action, scope, "failed", "internal")
            raise
        for message in messages:  # a response without an end
            await send(message)

    async def _record(self, action: Action, scope: Scope, held: list[Message]) -> None:
        status = next((message["status"] for message in held if message["type"] == "http.response.start"), 500)
        if status == 401 or IDENTIFIED not in scope.get("state", {}):
            return  # not authenticated: a failed sign-in, which is recorded elsewhere, or an earlier refusal
        document = _document(b"".join(message.get("body", b"") for message in held))
        if status >= 400:
            self._note(action, scope, "refused" if status in (403, 429) else "failed", _kind(document))
        else:
            await self._note_change(action, scope, document)
        await self._gateway.audit.flush()

    async def _note_change(self, action: Action, scope: Scope, document: Mapping[str, Any]) -> None:
        if action.name == "definitions.apply":
            names = {word: document.get(word) or {} for word in _CHANGES}
            self._note(action, scope, "ok", _summary(names))
            await self._note_policies(scope, {**names["added"], **names["changed"]})
        elif action.name in ("service.put", "stream.put"):
            version = document.get("version")
            self._note(action, scope, "ok", None if version is None else f"version {version}")
            if isinstance(version, int) and action.target is not None:
                await self._note_policies(scope, {action.target: version})
        elif action.target is None or action.name == "subscription.create":
            detail = None if action.target is None else f"service {action.target}"
            created = document.get("id") or document.get("name")
            self._note(Action(action.name, str(created)), scope, "ok", detail or _shown(document))
        else:
            self._note(action, scope, "ok", _shown(document))

    def _note(self, action: Action, scope: Scope, result: Result, detail: str | None) -> None:
        caller = scope.get("state", {}).get(IDENTIFIED)
        address = address_of(scope)
        self._gateway.audit.record(
            action.name, caller=caller, address=address, target=action.target, result=result, detail=detail
        )

    async def _note_policies(self, scope: Scope, versions: Mapping[str, int]) -> None:
        """Record the access policy of each service or stream whose new version changes it."""
        loop, registry = asyncio.get_running_loop(), self._gateway.registry
        for name in list(versions)[:MAX_NAMES]:
            with suppress(TidegateError):
                change = await loop.run_in_executor(None, _policy_change, registry, name, versions[name])
                if change is not None:
                    self._note(Action("policy.change", name), scope, "ok", change)


def _policy_change(registry: Registry, name: str, version: int) -> str | None:
    past = {change.version: change for change in registry.history(name)}
    before, after = _access(past.get(version - 1)), _access(past.get(version))
    return None if before == after else f"version {version}: {_written(before)} to {_written(after)}"


def _access(past: DefinitionVersion | None) -> Any:
    return (past.document or {}).get("access") if past is not None else None


def _written(access: Any) -> str:
    return "no policy" if access is None else orjson.dumps(access).decode()


def _summary(names: Mapping[str, Mapping[str, int]]) -> str:
    """Return the changed definitions as text, by name and version."""
    parts = []
    for word, versions in names.items():
        shown = [f"{name} v{version}" for name, version in list(versions.items())[:MAX_NAMES]]
        more = [f"and {len(versions) - len(shown)} more"] if len(versions) > len(shown) else []
        if versions:
            parts.append(f"{word} {', '.join([*shown, *more])}")
    return "; ".join(parts) or "nothing changed"


def _shown(document: Mapping[str, Any]) -> str | None:
    """Return the role, scope and expiry of a key or link. No other field: the response may contain its secret."""
    shown = {name: document[name] for name in ("role", "services", "expires_at") if document.get(name) is not None}
    if isinstance(document.get("name"), str) and "id" in document:
        shown["name"] = document["name"]
    return orjson.dumps(shown).decode() if shown else None


def _document(body: bytes) -> Mapping[str, Any]:
    with suppress(orjson.JSONDecodeError):
        document = orjson.loads(body) if body else {}
        if isinstance(document, dict):
            return document
    return {}


def _kind(problem: Mapping[str, Any]) -> str:
    """Return the kind of a problem. Its text is left out, because it may repeat the request."""
    return str(problem.get("type", "")).rpartition(":")[2] or "unknown"
