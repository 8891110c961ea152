"""Quarantines of services and raw streams: list their events, and replay them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response

from tidegate.errors import Violation, did_you_mean
from tidegate.gateway.auth.callers import Caller, caller_of
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http import parameters
from tidegate.gateway.http.bodies import json_of
from tidegate.gateway.http.problems import HttpProblem, bad_parameter
from tidegate.gateway.quarantine import (
    MAX_EVENTS,
    QuarantinePage,
    QuarantineQuery,
    ReplayEntry,
    ReplayMark,
    ReplayOutcome,
    ReplayPlan,
    ReplayPlanner,
    ReplayState,
    Subject,
    read_page,
)
from tidegate.gateway.routes.dependencies import Serving
from tidegate.ingress.http import IngestReceipt, Mode
from tidegate.model import timestamps
from tidegate.services import Service

_NDJSON = "application/x-ndjson"
_SELECTION = ("rule", "from", "to", "cursor", "max")

router = APIRouter(prefix="/v1", tags=["quarantine"])


class _Selection:
    """The query parameters that select quarantined events: a dependency of both list handlers."""

    def __init__(
        self,
        cursor: Annotated[str | None, Query(description="The cursor of the page before.")] = None,
        rule: Annotated[
            str | None, Query(description="Only events in which this attribute was invalid; event: the whole event.")
        ] = None,
        begin: Annotated[
            str | None, Query(alias="from", description="Quarantined since: beginning, a time, or 10m ago.")
        ] = None,
        end: Annotated[str | None, Query(alias="to", description="Quarantined before: a time, or 10m ago.")] = None,
        replayed: Annotated[bool | None, Query(description="Only events that were, or were not, replayed.")] = None,
        limit: Annotated[int, Query(alias="max", ge=1, le=MAX_EVENTS)] = 100,
    ) -> None:
        self.query = read_query(cursor, rule, begin, end, replayed, limit)


_Selected = Annotated[_Selection, Depends()]
_ReplayMode = Annotated[Literal["all", "partial"], Query(description="all: all events or none.")]


@router.get("/services/{name}/quarantine", summary="The events that a service has quarantined, and why")
async def _list_of_service(gateway: Serving, request: Request, name: str, selection: _Selected) -> dict[str, Any]:
    return await _list(gateway, caller_of(request), Subject(gateway.service(name)), selection.query)


@router.get("/streams/{name}/quarantine", summary="The events that a raw stream has quarantined, and why")
async def _list_of_stream(gateway: Serving, request: Request, name: str, selection: _Selected) -> dict[str, Any]:
    return await _list(gateway, caller_of(request), Subject(gateway.stream(name)), selection.query)


@router.post("/services/{name}/quarantine/replay", summary="Replay quarantined events of a service")
async def _replay_of_service(gateway: Serving, request: Request, name: str, mode: _ReplayMode = "all") -> Response:
    return await _replay(gateway, request, Subject(gateway.service(name)), mode)


@router.post("/streams/{name}/quarantine/replay", summary="Replay quarantined events of a raw stream")
async def _replay_of_stream(gateway: Serving, request: Request, name: str, mode: _ReplayMode = "all") -> Response:
    return await _replay(gateway, request, Subject(gateway.stream(name)), mode)


async def _list(gateway: Gateway, caller: Caller, subject: Subject, query: QuarantineQuery) -> dict[str, Any]:
    page = await gateway.executors.heavy(caller, partial(_read_page, gateway, subject, query))
    completed = await gateway.executors.heavy(caller, partial(gateway.replay_marks.completed, subject.replays))
    attributes = _attributes(gateway, subject)
    shows_raw = not (isinstance(subject.of, Service) and subject.of.mask)
    documents = []
    for event in page.events:
        mark = completed.get(str(event.position))
        replayed = None if mark is None else mark.to_json()
        documents.append(event.to_json(attributes, shows_raw=shows_raw, replayed=replayed))
    return {"quarantined": documents, "cursor": page.cursor, "more": page.more}


async def _replay(gateway: Gateway, request: Request, subject: Subject, mode: Mode) -> Response:
    caller = caller_of(request)
    body = read_replay(await json_of(request, gateway.executors, caller))
    page: QuarantinePage | None = None
    if "all" in body:
        page = await gateway.executors.heavy(caller, partial(_read_page, gateway, subject, read_selection(body)))
        entries = [ReplayEntry(str(event.position), patch=body.get("patch")) for event in page.events]
    else:
        entries = read_entries(body)
    planner = ReplayPlanner(gateway.log, gateway.definitions, subject, gateway.replay_marks)
    plan = await gateway.executors.heavy(caller, partial(planner.plan, entries))
    if mode == "all" and plan.refused:
        raise _nothing_sent(plan)
    for stream in plan.bodies:
        gateway.policies.streams.need_append(caller, stream)  # a key for a service alone may not write to its inputs
        gateway.stream(stream)  # raises if it does not exist
    gateway.meter.need_events(caller)
    outcomes = await _send(gateway, subject, plan, None if caller.id is None else caller.name)
    counts = {
        result: sum(outcome.result == result for outcome in outcomes) for result in ("replayed", "already", "refused")
    }
    gateway.meter.took_events(caller, counts["replayed"])
    answer: dict[str, Any] = {**counts, "results": [outcome.to_json() for outcome in outcomes]}
    if page is not None:
        answer |= {"cursor": page.cursor, "more": page.more}
    return Response(orjson.dumps(answer), media_type="application/json")


async def _send(gateway: Gateway, subject: Subject, plan: ReplayPlan, by: str | None) -> list[ReplayOutcome]:
    """Append the planned events. A mark "begun" is written before them and a mark "done" after them.

    If the gateway ends between the two, the next replay looks for the events in the raw stream and
    sends none of them twice.
    """
    failed: dict[str, ReplayOutcome] = {}
    for stream, lines in plan.bodies.items():
        ids = plan.ids(stream)

        def mark(state: ReplayState, stream: str = stream, ids: list[str] = ids) -> None:
            now = timestamps.to_text(timestamps.from_datetime(datetime.now(UTC)))
            gateway.replay_marks.append(subject.replays, [ReplayMark(id_, state, stream, now, by) for id_ in ids])

        await asyncio.to_thread(mark, "begun")
        receipt = await gateway.ingest.ingest(stream, _NDJSON, {}, b"\n".join(lines), "all")
        if receipt.refused:
            failed |= _refused(stream, ids, receipt)
            continue
        await asyncio.to_thread(mark, "done")
    return [failed.get(outcome.id, outcome) for outcome in plan.outcomes]


def _read_page(gateway: Gateway, subject: Subject, query: QuarantineQuery) -> QuarantinePage:
    """Blocks: reads the log."""
    replayed = gateway.replay_marks.completed(subject.replays)
    return read_page(gateway.log, subject.quarantine, query, _attributes(gateway, subject), replayed)


def _attributes(gateway: Gateway, subject: Subject) -> set[str]:
    """Return the attributes that a reason may name: those of the output and of the inputs."""
    names = [subject.name, *(subject.of.inputs if isinstance(subject.of, Service) else ())]
    return {field.name for name in names if name in gateway.schemas for field in gateway.schemas[name].root}


def read_query(
    cursor: str | None, rule: str | None, begin: str | None, end: str | None, replayed: bool | None, limit: int
) -> QuarantineQuery:
    """Read the parameters that select events. Raises `HttpProblem` (400) for a time that can't be used."""
    start = parameters.start(cursor, begin or (None if cursor else "beginning"))
    if start.is_now:
        raise bad_parameter("from", begin or "", "beginning, a moment such as 2026-01-01T00:00:00Z, or 10m")
    until = None if end is None else parameters.start(None, end)
    if until is not None and until.since_micros is None:
        raise bad_parameter("to", end or "", "a moment such as 2026-01-01T00:00:00Z, or 10m")
    return QuarantineQuery(
        start.cursor, start.since_micros, None if until is None else until.since_micros, rule or None, replayed, limit
    )


def read_replay(body: Any) -> Mapping[str, Any]:
    """Check the fields of a replay request. Raises `HttpProblem` (422) if it has others."""
    if isinstance(body, dict) and (set(body) == {"events"} or {"all"} <= set(body) <= {"all", "patch"}):
        return body
    raise _bad("", f"expected {{'events': [...]}} or {{'all': {{...}}}} with an optional patch, not {body!r:.60}")


def read_selection(body: Mapping[str, Any]) -> QuarantineQuery:
    """Read `all`, which has the fields of the list's parameters. Selects only events that were not replayed."""
    selection, patch = body["all"], body.get("patch")
    if not isinstance(selection, dict):
        raise _bad("all", f"expected an object, {{}} for everything, not {selection!r:.60}")
    for name, value in selection.items():
        if name not in _SELECTION:
            raise _bad(f"all.{name}", f"unknown field {name!r:.60}{did_you_mean(name, _SELECTION)}")
        if name != "max" and not isinstance(value, str):
            raise _bad(f"all.{name}", f"expected a text, not {value!r:.60}")
    if patch is not None and not isinstance(patch, dict):
        raise _bad("patch", f"expected an object, not {patch!r:.60}")
    limit = selection.get("max", MAX_EVENTS)
    if type(limit) is not int or not 1 <= limit <= MAX_EVENTS:
        raise _bad("all.max", f"expected a whole number from 1 to {MAX_EVENTS:,}, not {limit!r:.60}")
    cursor, rule, begin, end = (selection.get(name) for name in ("cursor", "rule", "from", "to"))
    return read_query(cursor, rule, begin, end, False, limit)


def read_entries(body: Mapping[str, Any]) -> list[ReplayEntry]:
    """Read `events`. Raises `HttpProblem` (422) that names the entry and the field that can't be used."""
    listed = body["events"]
    if not isinstance(listed, list) or not listed:
        raise _bad(
            "events", f"expected a list of {{'id': '...'}}, with an event, a patch or neither, not {listed!r:.60}"
        )
    if len(listed) > MAX_EVENTS:
        raise _bad("events", f"expected at most {MAX_EVENTS:,}, not {len(listed):,}: send several requests")
    return [_read_entry(entry, f"events[{index}]") for index, entry in enumerate(listed)]


def _read_entry(entry: Any, where: str) -> ReplayEntry:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        raise _bad(f"{where}.id", f"expected {{'id': '...'}} as the list shows it, not {entry!r:.60}")
    fields = ("id", "event", "patch", "stream")
    for name, value in entry.items():
        if name not in fields:
            raise _bad(f"{where}.{name}", f"unknown field {name!r:.60}{did_you_mean(name, fields)}")
        if name in ("event", "patch") and value is not None and not isinstance(value, dict):
            raise _bad(f"{where}.{name}", f"expected an object, not {value!r:.60}")
    if entry.get("event") is not None and entry.get("patch") is not None:
        raise _bad(where, "expected an event or a patch, not both")
    stream = entry.get("stream")
    if stream is not None and not isinstance(stream, str):
        raise _bad(f"{where}.stream", f"expected the name of a raw stream, not {stream!r:.60}")
    return ReplayEntry(entry["id"], entry.get("event"), entry.get("patch"), stream)


def _bad(pointer: str, detail: str) -> HttpProblem:
    where = f"{pointer}: {detail}" if pointer else detail
    errors = [{"pointer": pointer, "detail": detail}]
    return HttpProblem(422, "bad-replay", "The events can't be replayed", where, errors)


def _nothing_sent(plan: ReplayPlan) -> HttpProblem:
    errors = [
        {"index": index, "id": outcome.id, "pointer": violation.path, "detail": violation.message}
        for index, outcome in plan.refused
        for violation in outcome.errors
    ]
    first = "; ".join(f"events[{error['index']}]: {error['pointer']}: {error['detail']}" for error in errors[:3])
    detail = f"nothing was sent: {len(plan.refused)} of {len(plan.outcomes)} events can't be replayed: {first}"
    return HttpProblem(422, "bad-replay", "The events can't be replayed", detail, errors)


def _refused(stream: str, ids: list[str], receipt: IngestReceipt) -> dict[str, ReplayOutcome]:
    """Return the outcomes of events that ingest has refused: the stream was changed after the plan."""
    errors = tuple(Violation(error.path, error.message) for error in receipt.errors)
    return {id_: ReplayOutcome(id_, "refused", stream, errors) for id_ in ids}
