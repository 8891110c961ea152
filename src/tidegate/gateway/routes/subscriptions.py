"""Durable subscriptions: create, change, remove, consume from the cursor, and explain."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from starlette.requests import HTTPConnection

from tidegate.delivery.conflation import conflated
from tidegate.delivery.latest import Latest
from tidegate.delivery.subscriber import Sink, Subscriber
from tidegate.errors import (
    DefinitionProblem,
    EndedSubscription,
    NotRegistered,
    SubscriptionError,
    VersionConflict,
)
from tidegate.filters import Filter
from tidegate.gateway.auth.callers import Caller, caller_of
from tidegate.gateway.auth.owners import grant_of, is_owner, renewed
from tidegate.gateway.auth.view import View
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http import parameters
from tidegate.gateway.http.bodies import json_of
from tidegate.gateway.http.compiling import compiled_of, in_turn
from tidegate.gateway.http.names import NamedRoute
from tidegate.gateway.http.problems import HttpProblem, bad_parameter
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.routes.events import MAX_PAGE_EVENTS, MAX_WAIT_S
from tidegate.gateway.routes.untrusted import allowed_to
from tidegate.gateway.subscriptions import consuming
from tidegate.gateway.transports.poll import page
from tidegate.gateway.transports.sse import EventStream
from tidegate.logs import Cursor, EventLog
from tidegate.matching import Matcher
from tidegate.model import Schema, timestamps, units
from tidegate.registry import RegisteredSubscription
from tidegate.semantics.looking import described as described_by_meaning
from tidegate.subscriptions import BEGINNINGS, Pull, SubscriptionRecord, changed, compiled, new_id, wants_handshake
from tidegate.subscriptions.topics import TopicTarget

MAX_BODY_BYTES = 256 * 1024
"""Size of the document of a subscription."""
MAX_LISTED = 1_000
"""Subscriptions in one response."""
LAG_CACHE_S = 1.0
"""Lags that are younger than this are not measured again."""
MAX_SEARCHED = 200_000
"""Events that are searched for one with an id."""

JSON = "application/json"

_numbers = itertools.count()

Id = Annotated[str, Path(alias="id")]
"""The id of a subscription in a path."""


router = APIRouter(prefix="/v1", tags=["subscriptions"], route_class=NamedRoute)


@router.post("/services/{name}/subscriptions", status_code=201, summary="Make a durable subscription")
async def _create(gateway: Serving, request: Request, name: str) -> Response:
    gateway.service(name)
    schema = gateway.view(request).schema(name)
    body = await document(request, {})
    caller = caller_of(request)
    grant = grant_of(caller, gateway.access, datetime.now(UTC))
    blank = SubscriptionRecord(new_id(), name, owner=caller.id, grant=grant)
    for quota in ("durable", "subscriptions"):
        gateway.meter.need(quota, caller, gateway.durable.count(caller.id))
    meaning = gateway.policies.meaning(name)
    key = gateway.view(request).key(name)
    change = partial(changed, blank, body, schema, beside=BEGINNINGS, meaning=meaning, key=key)
    record = await in_turn(gateway.executors, caller, _filter_parts(body), change)
    gateway.meter.need_filter(caller, record.filter)
    for member in ("from", "cursor"):
        if not isinstance(body.get(member), str | None):
            raise SubscriptionError([DefinitionProblem(member, f"expected a text, not {body[member]!r:.60}")])
    start = parameters.start(body.get("cursor"), body.get("from"))
    if start.cursor is not None:
        await gateway.durable.check(name, start.cursor)
    await _check_owner(gateway, record, caller)
    await _check_receiver(gateway, record, body, caller)
    filter_ = await compiled_of(gateway.executors, caller, record, schema, meaning)
    position = await gateway.hub.begin(name, start, filter_)
    cursor = None if position is None else position.text
    registered = await gateway.durable.change(lambda registry: registry.subscribe(record, cursor))
    return _response(gateway, registered, 201, show_secret=True)


@router.get("/services/{name}/subscriptions", summary="Who subscribes to a service, durably")
async def _of_service(gateway: Serving, request: Request, name: str) -> dict[str, Any]:
    gateway.service(name)
    caller = caller_of(request)
    all_ = await gateway.durable.ask(lambda registry: registry.subscriptions(name))
    seen = [registered for registered in all_.values() if may_see(gateway, caller, registered.subscription)]
    return {
        "subscriptions": [
            _for_caller(gateway, caller, _with_state(gateway, registered), registered.subscription)
            for registered in seen
        ]
    }


@router.get("/subscriptions", summary="All durable subscriptions that one may see, and how they do")
async def _all(
    gateway: Serving,
    request: Request,
    limit: Annotated[
        int,
        Query(alias="max", ge=1, le=MAX_LISTED, description="The largest number of subscriptions, the newest first."),
    ] = 100,
) -> Response:
    await gateway.durable.measure(LAG_CACHE_S)
    caller = caller_of(request)
    all_ = await gateway.durable.ask(lambda registry: registry.subscriptions())
    shown = [registered for registered in all_.values() if may_see(gateway, caller, registered.subscription)]
    answer = {
        "subscriptions": [_with_status(gateway, registered, caller) for registered in reversed(shown[-limit:])],
        "total": len(shown),
    }
    return Response(orjson.dumps(answer), media_type=JSON)


@router.get("/subscriptions/{id}", summary="One subscription, and how far it has come")
async def _get(gateway: Serving, request: Request, id_: Id) -> Response:
    return _response(gateway, await found_for(gateway, request, id_))


@router.get("/subscriptions/{id}/status", summary="One subscription, and how it does")
async def _status(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    registered = await found_for(gateway, request, id_)
    await gateway.durable.measure(LAG_CACHE_S)
    return _with_status(gateway, registered, caller_of(request))


@router.patch("/subscriptions/{id}", summary="Change a subscription; a connected subscriber continues with it at once")
async def _patch(gateway: Serving, request: Request, id_: Id) -> Response:
    body = await document(request)
    expected = _if_match(request)
    version = body.get("version") if isinstance(body, Mapping) else None
    if version is not None and type(version) is not int:
        raise SubscriptionError([DefinitionProblem("version", f"expected a whole number, not {version!r:.60}")])
    before = await found_for(gateway, request, id_)
    service = before.subscription.service
    view, meaning = gateway.view(request), gateway.policies.meaning(service)
    schema, key = view.schema(service), view.key(service)
    change = partial(changed, before.subscription, body, schema, beside=("version",), meaning=meaning, key=key)
    record = await in_turn(gateway.executors, view.caller, _filter_parts(body), change)
    record = renewed(record, view.caller, gateway.access, datetime.now(UTC))
    resume = is_owner(view.caller, record)
    await _check_owner(gateway, record, view.caller)
    gateway.meter.need_filter(view.caller, record.filter)
    was_pull = isinstance(before.subscription.deliver, Pull)
    if _address(record) != _address(before.subscription):
        await _check_receiver(gateway, record, body, view.caller)
    base = expected if expected is not None else version if version is not None else before.version
    try:
        registered = await gateway.durable.change(
            lambda registry: registry.change_subscription(record, base, resume=resume)
        )
    except VersionConflict as conflict:
        if expected is None:
            raise
        raise HttpProblem(
            412, "version-conflict", "It was changed meanwhile", str(conflict), version=conflict.present
        ) from conflict
    return _response(gateway, registered, show_secret=was_pull)


@router.delete("/subscriptions/{id}", status_code=204, summary="Remove a subscription")
async def _delete(gateway: Serving, request: Request, id_: Id) -> None:
    await found_for(gateway, request, id_)
    await gateway.durable.remove(id_)


@router.get(
    "/subscriptions/{id}/events",
    summary="Events from the cursor on: SSE with Accept: text/event-stream, else a page",
)
async def _events(
    gateway: Serving,
    request: Request,
    id_: Id,
    cursor: Annotated[str | None, Query(description="Acknowledge all before it, and go on behind it.")] = None,
    after: Annotated[str | None, Query(description="Go on behind it, acknowledging nothing.")] = None,
    last_event_id: Annotated[str | None, Query(alias="Last-Event-ID")] = None,
    wait: Annotated[str | None, Query(description="A page: how long to wait for a first event.")] = None,
    limit: Annotated[int, Query(alias="max", ge=1, le=MAX_PAGE_EVENTS, description="A page: events at most.")] = 1_000,
    latest: Annotated[
        str | None,
        Query(description="Of what waits, just the newest event of each value of this; true: of the service's key."),
    ] = None,
) -> Any:
    registered = await found_for(gateway, request, id_)
    record = registered.subscription
    consuming.need_pull(registered)
    wait_s = parameters.seconds("wait", wait, MAX_WAIT_S) or 0.0
    is_stream = "text/event-stream" in request.headers.get("accept", "")
    resume_after = (request.headers.get("last-event-id") or last_event_id) if is_stream else None
    position = await consuming.begin(gateway.durable, registered, resume_after, cursor, after)
    view = gateway.view(request)
    schema = view.schema(record.service)
    latest_by = parameters.latest(latest, schema, view.key(record.service))
    meaning = view.meaning(record.service)
    filter_ = await compiled_of(gateway.executors, view.caller, record, schema, meaning)
    encoding = gateway.durable.encoding(record, view.caller)
    conflation = parameters.conflation(record.every_s, record.key, schema)

    def make(sink: Sink) -> Subscriber:
        name = f"{id_}#{next(_numbers)}"
        first = conflated(view.paced(sink), conflation) if is_stream else sink
        subscriber = Subscriber(name, record.service, filter_, first, encoding, position)
        subscriber.sink.caller = view.caller
        if latest_by and not resume_after:
            subscriber.latest = Latest(latest_by)
        return gateway.durable.connect(registered, subscriber)

    if is_stream:
        tally = gateway.metrics.delivered(record.service, "sse", id_)
        ended = view.meter.taken("subscriptions", view.caller)
        return EventStream(gateway.hub, make, tally, idle_s=record.idle_s, ended=ended)
    limit = view.meter.need_deliveries(view.caller, limit)
    try:
        got = await page(gateway.hub, make, limit, wait_s, conflation)
    except EndedSubscription as error:
        raise HttpProblem(409, "ended", "The subscription has ended", str(error)) from error
    view.meter.delivered(view.caller, len(got.events))
    gateway.metrics.delivered(record.service, "poll", id_).add(len(got.events))
    return Response(got.to_json(), media_type="application/json")


@router.post("/subscriptions/{id}/ack", summary="Acknowledge received events; stored when this answers")
async def _ack(gateway: Serving, request: Request, id_: Id) -> dict[str, Any]:
    body = await document(request)
    if not isinstance(body, Mapping) or set(body) != {"cursor"} or not isinstance(body["cursor"], str):
        detail = f"expected {{'cursor': '...'}}, the cursor of the last event received, not {body!r:.60}"
        raise SubscriptionError([DefinitionProblem("cursor", detail)])
    registered = await found_for(gateway, request, id_)
    target = registered.subscription.push_target
    if target is not None:
        raise consuming.conflict(
            f"{id_!r} is delivered by {target.kind}: its cursor moves with what the receiver takes"
        )
    at, has_moved = await gateway.durable.acknowledge(id_, Cursor.from_text(body["cursor"]))
    detail = "moved" if has_moved else "the cursor was there already, or further on: nothing has changed"
    return {"cursor": at, "moved": has_moved, "detail": detail}


@router.get("/subscriptions/{id}/explain", summary="What the filter means, and why an event matches or not")
async def _explain(
    gateway: Serving,
    request: Request,
    id_: Id,
    event: Annotated[str | None, Query(description="An event as JSON, or the id of one in the stream.")] = None,
) -> Response:
    record = (await found_for(gateway, request, id_)).subscription
    view = gateway.view(request)
    schema = view.schema(record.service)
    work = partial(explained, record, schema, gateway.log, event, view)
    answer = await gateway.executors.heavy(view.caller, work)
    return Response(orjson.dumps(answer, default=str), media_type="application/json")


def _with_state(gateway: Gateway, registered: RegisteredSubscription, *, show_secret: bool = False) -> dict[str, Any]:
    described = describe(registered, gateway.durable.cursor(registered), show_secret=show_secret)
    return {**described, "connected": len(gateway.durable.connected(registered.subscription.id))}


def _with_status(gateway: Gateway, registered: RegisteredSubscription, caller: Caller) -> dict[str, Any]:
    """Return the document of a subscription with its lag, its deliveries from this gateway, and its last error."""
    record, metrics = registered.subscription, gateway.metrics
    tally, is_mine = metrics.subscriptions.get(record.id), may_touch(caller, record)
    failure = metrics.failures.get(record.id) if is_mine else None  # it may contain a receiver's response
    return {
        **_for_caller(gateway, caller, _with_state(gateway, registered), record),
        "lag": gateway.durable.lags.stored.get((record.service, record.id)),
        "delivered": 0 if tally is None else tally.count,
        "last_error": None if failure is None else {"at": _moment(failure[0]), "detail": failure[1]},
        "mine": is_mine,
    }


def _response(
    gateway: Gateway, registered: RegisteredSubscription, status: int = 200, *, show_secret: bool = False
) -> Response:
    headers = {"etag": f'"{registered.version}"'}
    if status == 201:
        headers["location"] = f"/v1/subscriptions/{registered.subscription.id}"
    body = orjson.dumps(_with_state(gateway, registered, show_secret=show_secret))
    return Response(body, status, headers, JSON)


async def _check_receiver(gateway: Gateway, record: SubscriptionRecord, body: Any, caller: Caller) -> None:
    target = record.push_target
    if isinstance(target, TopicTarget) and target.connection not in allowed_to(gateway, caller).connections:
        message = f"the profile has no {target.kind} connection {target.connection!r} that you may use"
        raise SubscriptionError([DefinitionProblem(f"deliver.{target.kind}.connection", message)])
    if target is not None:
        async with gateway.executors.turn(caller):  # DNS and the receiver may be slow
            await gateway.durable.transports.validate(target, handshake=wants_handshake(body))


async def _check_owner(gateway: Gateway, record: SubscriptionRecord, caller: Caller) -> None:
    """Raise unless the filter of a pushed subscription uses only attributes that its owner sees.

    It is delivered with the rights of its owner, who may not be the caller.
    """
    if record.push_target is not None:
        await gateway.sweep.read_keys()
        owner = gateway.owners.owner(record)
        schema, meaning = gateway.policies.schema(owner, record.service), gateway.policies.meaning(record.service)
        await compiled_of(gateway.executors, caller, record, schema, meaning)


# Responses ----------------------------------------------------------------------------------


def describe(registered: RegisteredSubscription, cursor: str | None, *, show_secret: bool = False) -> dict[str, Any]:
    """Return the document of a subscription. A secret is included only with `show_secret`, once, when it is new."""
    record = registered.subscription
    target = record.push_target
    deliver: Any = "pull" if target is None else {target.kind: target.describe(show_secret=show_secret)}
    return {
        "id": record.id,
        "service": record.service,
        "version": registered.version,
        "state": registered.state,
        "reason": registered.reason,
        "filter": record.filter,
        "params": list(record.params),
        "deliver": deliver,
        "select": None if record.select is None else list(record.select),
        "format": record.format,
        "every": None if record.every_s is None else units.duration_text(record.every_s),
        "key": record.key,
        "idle": None if record.idle_s is None else units.duration_text(record.idle_s),
        "description": record.description,
        "cursor": cursor,
        "attempts": registered.attempts,
        "retry_at": None if registered.retry_at is None else registered.retry_at.isoformat(),
        "created_at": registered.created_at.isoformat(),
        "changed_at": registered.changed_at.isoformat(),
        "expires_at": None if record.grant is None else timestamps.to_text(record.grant.expires_at),
    }


def explained(
    record: SubscriptionRecord,
    schema: Schema,
    log: EventLog,
    event: str | None,
    view: View,
) -> dict[str, Any]:
    """Return how a subscription's filter is parsed and indexed, and why it matches an event or not. Blocks."""
    meaning = view.meaning(record.service)
    filter_ = compiled(record, schema, meaning) or Filter("", schema)
    sample = None if event is None else event_of(event, record.service, log, view)
    matcher = Matcher(schema, semantics=meaning)
    try:
        matcher.add(record.id, filter_)
        index = matcher.explain(record.id, None if sample is None else [sample])
    finally:
        matcher.close()
    return {"subscription": record.id, **described_by_meaning(filter_, sample), "index": index}


def event_of(text: str, service: str, log: EventLog, view: View) -> dict[str, Any]:
    """Return an event as a caller sees it, from JSON or by its id in a service's output. Blocks.

    Raises `HttpProblem`: 400 if the JSON is malformed, 404 if there is no such id.
    """
    if text.lstrip().startswith("{"):
        hidden = view.hidden(service)
        return {name: value for name, value in _parsed_event(text).items() if name not in hidden}
    return _find_event(text, service, log, view)


def _parsed_event(text: str) -> dict[str, Any]:
    try:
        event: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise bad_parameter("event", text[:60], f"an event as a JSON object, or an event's id ({error})") from error
    data = event.get("data")
    return data if "specversion" in event and isinstance(data, dict) else event


def _find_event(id_: str, service: str, log: EventLog, view: View) -> dict[str, Any]:
    """Search the retained events of a service for one that the caller sees under an id."""
    needle, searched = orjson.dumps(id_), 0
    is_hashed = view.policies.hides_ids(view.caller, service)
    position = log.begin(service)
    while searched < MAX_SEARCHED and (read := log.read(service, position, 5_000)).records:
        for record in read.records:
            if is_hashed or needle in record:
                event = view.shown_event(orjson.loads(record), service)
                if event.get("_id") == id_:
                    return event
        searched, position = searched + len(read.records), read.cursor
    detail = f"no event {id_!r} in the first {searched:,} that {service!r} still has; give the event itself, as JSON"
    raise HttpProblem(404, "not-found", "There is no such thing", detail)


# Ownership ----------------------------------------------------------------------------------


def may_touch(caller: Caller, record: SubscriptionRecord) -> bool:
    """True if a caller owns a subscription, or is an operator. Callers without credentials own nothing.

    Subscriptions without an owner were created while no keys were required. They belong to the operators.
    """
    return caller.may("operate") or is_owner(caller, record)


def may_see(gateway: Gateway, caller: Caller, record: SubscriptionRecord) -> bool:
    """True if a caller may list a subscription: their own; for a provider, all of services that they see."""
    if may_touch(caller, record):
        return gateway.policies.may_keep(caller, record.service)
    return caller.may("define") and gateway.policies.sees(caller, record.service)


def _for_caller(
    gateway: Gateway, caller: Caller, described: dict[str, Any], record: SubscriptionRecord
) -> dict[str, Any]:
    """Return the document of a subscription for a caller.

    If they do not own it, its webhook address is hidden, and so is its filter if attributes are hidden from them.
    """
    if may_touch(caller, record):
        return described
    target = record.push_target
    if target is not None:
        described = {**described, "deliver": {target.kind: target.describe(show_address=False)}}
    if gateway.policies.withheld(caller, record.service):
        described = {**described, "filter": "", "params": [], "select": None, "key": None}
    return described


async def found_for(gateway: Gateway, request: HTTPConnection, id_: str) -> RegisteredSubscription:
    """Return a subscription that the caller may change. Raises `NotRegistered`, also if it belongs to another."""
    registered = await gateway.durable.ask(lambda registry: registry.subscription(id_))
    caller = caller_of(request)
    if not may_touch(caller, registered.subscription) or not gateway.policies.may_keep(
        caller, registered.subscription.service
    ):
        raise NotRegistered(f"there is no subscription {id_!r}")
    return registered


# Requests -----------------------------------------------------------------------------------


async def document(request: Request, default: Any = None) -> Any:
    """Parse a request's body as JSON; an empty body is `default`. Raises `HttpProblem` (400, 413)."""
    body = await request.body()
    if not body and default is not None:
        return default
    if len(body) > MAX_BODY_BYTES:
        detail = f"expected at most {MAX_BODY_BYTES:,} bytes, not {len(body):,}"
        raise HttpProblem(413, "too-large", "The request is too large", detail)
    return await json_of(request)


def _filter_parts(body: Any) -> list[Any]:
    """Return the filter and the parameters in the document of a subscription, which is not validated yet."""
    if not isinstance(body, Mapping):
        return []
    params = body.get("params")
    return [body.get("filter"), *(params if isinstance(params, list) else ())]


def _moment(at_s: float) -> str:
    return timestamps.to_text(int(at_s * 1e6))


def _address(record: SubscriptionRecord) -> str | None:
    target = record.push_target
    return None if target is None else f"{target.kind} {target.address}"


def _if_match(request: Request) -> int | None:
    header = request.headers.get("if-match")
    if header is None or header.strip() == "*":
        return None
    number = header.strip().removeprefix("W/").strip('"')
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise bad_parameter("If-Match", header, 'a version in quotes, such as "3", as ETag has it')
    return int(number)
