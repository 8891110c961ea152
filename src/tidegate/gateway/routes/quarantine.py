"""Quarantines: what services and raw streams have refused, and sending it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi import APIRouter, Query, Request, Response

from tidegate.errors import Violation, did_you_mean
from tidegate.gateway import parameters
from tidegate.gateway.bodies import json_of
from tidegate.gateway.callers import Caller, caller_of
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.ingest import Mode, Receipt
from tidegate.gateway.problems import Problem, bad_parameter
from tidegate.gateway.quarantine import (
    MOST,
    Entry,
    Found,
    Mark,
    Marks,
    Outcome,
    Plan,
    Planner,
    State,
    Subject,
    Wanted,
    select,
)
from tidegate.model import timestamps
from tidegate.services import Service

T = TypeVar("T")

_NDJSON = "application/x-ndjson"
_SELECTION = ("rule", "from", "to", "cursor", "max")


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1", tags=["quarantine"])
    marks = Marks(gateway.log)

    def subject_of(kind: str, name: str) -> Subject:
        if kind == "services":
            return Subject(gateway.service(name))
        return Subject(gateway.stream(name))

    def read(subject: Subject, wanted: Wanted) -> Found:
        return select(gateway.log, subject.quarantine, wanted, attributes(subject), marks.done(subject.replays))

    def attributes(subject: Subject) -> set[str]:
        """All that a reason may name."""
        names = [subject.name, *(subject.of.inputs if isinstance(subject.of, Service) else ())]
        return {field.name for name in names if name in gateway.schemas for field in gateway.schemas[name].root}

    async def in_thread(caller: Caller, call: Callable[[], T]) -> T:
        """Read a log, which may take long, in the caller's turn."""
        return await gateway.executors.heavy(caller, call)

    async def listed(caller: Caller, kind: str, name: str, wanted: Wanted) -> dict[str, Any]:
        subject = subject_of(kind, name)
        found = await in_thread(caller, partial(read, subject, wanted))
        done, known = await in_thread(caller, partial(marks.done, subject.replays)), attributes(subject)
        shows_raw = not (isinstance(subject.of, Service) and subject.of.mask)
        said = []
        for each in found.refused:
            mark = done.get(str(each.place))
            replayed = None if mark is None else mark.to_json()
            said.append(each.to_json(known, shows_raw=shows_raw, replayed=replayed))
        return {"quarantined": said, "cursor": found.cursor, "more": found.more}

    async def replayed(request: Request, kind: str, name: str, mode: Mode) -> Response:
        subject = subject_of(kind, name)
        said = document(await json_of(request, gateway.executors, caller_of(request)))
        page: Found | None = None
        if "all" in said:
            wanted = selection(said)
            page = await in_thread(caller_of(request), partial(read, subject, wanted))
            patch = said.get("patch")
            entries = [Entry(str(each.place), patch=patch) for each in page.refused]
        else:
            entries = entries_of(said)
        planner = Planner(gateway.log, gateway.definitions, subject, marks)
        plan = await in_thread(caller_of(request), partial(planner.plan, entries))
        if mode == "all" and plan.refused:
            raise _nothing_sent(plan)
        caller = caller_of(request)
        for stream in plan.bodies:
            gateway.policies.need_append(caller, stream)  # a key for a service alone does not open what it reads
            gateway.stream(stream)  # an error where there is none
        gateway.meter.need_events(caller)
        outcomes = await send(subject, plan, None if caller.id is None else caller.name)
        counts = {each: sum(one.result == each for one in outcomes) for each in ("replayed", "already", "refused")}
        gateway.meter.took_events(caller, counts["replayed"])
        answer: dict[str, Any] = {**counts, "results": [each.to_json() for each in outcomes]}
        if page is not None:
            answer |= {"cursor": page.cursor, "more": page.more}
        return Response(orjson.dumps(answer), media_type="application/json")

    async def send(subject: Subject, plan: Plan, by: str | None) -> list[Outcome]:
        """Append what was planned. A mark before says that it was tried, and one behind it that it is done.

        So whoever dies between the two sends nothing twice: who comes next looks for it in the stream.
        """
        failed: dict[str, Outcome] = {}
        for stream, lines in plan.bodies.items():
            ids = plan.ids(stream)

            def note(state: State, stream: str = stream, ids: list[str] = ids) -> None:
                now = timestamps.to_text(timestamps.from_datetime(datetime.now(UTC)))
                marks.note(subject.replays, [Mark(id_, state, stream, now, by) for id_ in ids])

            await asyncio.to_thread(note, "begun")
            receipt = await gateway.ingest.ingest(stream, _NDJSON, {}, b"\n".join(lines), "all")
            if receipt.refused:
                failed |= _refused(stream, ids, receipt)
                continue
            await asyncio.to_thread(note, "done")
        return [failed.get(each.id, each) for each in plan.outcomes]

    def add(kind: Literal["services", "streams"], what: str) -> None:
        path = f"/{kind}/{{name}}/quarantine"

        @routes.get(path, summary=f"What {what} has refused, and why", name=f"{kind}_quarantine")
        async def list_(
            request: Request,
            name: str,
            cursor: Annotated[str | None, Query(description="Go on behind a page.")] = None,
            rule: Annotated[str | None, Query(description="Where this attribute was wrong; event: all of it.")] = None,
            begin: Annotated[
                str | None, Query(alias="from", description="Refused since: beginning, a moment, or 10m ago.")
            ] = None,
            end: Annotated[str | None, Query(alias="to", description="Refused before: a moment, or 10m ago.")] = None,
            replayed: Annotated[bool | None, Query(description="Just what was, or was not, sent again.")] = None,
            most: Annotated[int, Query(alias="max", ge=1, le=MOST)] = 100,
        ) -> dict[str, Any]:
            return await listed(caller_of(request), kind, name, wanted_of(cursor, rule, begin, end, replayed, most))

        @routes.post(f"{path}/replay", summary=f"Send what {what} has refused again", name=f"{kind}_replay")
        async def replay(
            request: Request,
            name: str,
            mode: Annotated[Literal["all", "partial"], Query(description="all: all or nothing.")] = "all",
        ) -> Response:
            return await replayed(request, kind, name, mode)

    add("services", "a service")
    add("streams", "a raw stream")
    return routes


# What is asked for ----------------------------------------------------------------------------


def wanted_of(
    cursor: str | None, rule: str | None, begin: str | None, end: str | None, replayed: bool | None, most: int
) -> Wanted:
    """Which records the parameters mean."""
    start = parameters.start(cursor, begin or (None if cursor else "beginning"))
    if start.is_now:
        raise bad_parameter("from", begin or "", "beginning, a moment such as 2026-01-01T00:00:00Z, or 10m")
    until = None if end is None else parameters.start(None, end)
    if until is not None and until.since_micros is None:
        raise bad_parameter("to", end or "", "a moment such as 2026-01-01T00:00:00Z, or 10m")
    return Wanted(
        start.cursor, start.since_micros, None if until is None else until.since_micros, rule or None, replayed, most
    )


def document(said: Any) -> Mapping[str, Any]:
    """What a request says is to be sent again."""
    if isinstance(said, dict) and (set(said) == {"events"} or {"all"} <= set(said) <= {"all", "patch"}):
        return said
    raise _bad("", f"expected {{'events': [...]}} or {{'all': {{...}}}} with a patch or none, not {said!r:.60}")


def selection(said: Mapping[str, Any]) -> Wanted:
    """What `all` means: as the parameters of the list have it, and not sent again yet."""
    of, patch = said["all"], said.get("patch")
    if not isinstance(of, dict):
        raise _bad("all", f"expected an object, {{}} for everything, not {of!r:.60}")
    for name, value in of.items():
        if name not in _SELECTION:
            raise _bad(f"all.{name}", f"unknown field {name!r:.60}{did_you_mean(name, _SELECTION)}")
        if name != "max" and not isinstance(value, str):
            raise _bad(f"all.{name}", f"expected a text, not {value!r:.60}")
    if patch is not None and not isinstance(patch, dict):
        raise _bad("patch", f"expected an object, not {patch!r:.60}")
    most = of.get("max", MOST)
    if type(most) is not int or not 1 <= most <= MOST:
        raise _bad("all.max", f"expected a whole number from 1 to {MOST:,}, not {most!r:.60}")
    return wanted_of(of.get("cursor"), of.get("rule"), of.get("from"), of.get("to"), False, most)


def entries_of(said: Mapping[str, Any]) -> list[Entry]:
    """What `events` lists."""
    listed = said["events"]
    if not isinstance(listed, list) or not listed:
        raise _bad(
            "events", f"expected a list of {{'id': '...'}}, with an event, a patch or neither, not {listed!r:.60}"
        )
    if len(listed) > MOST:
        raise _bad("events", f"expected at most {MOST:,}, not {len(listed):,}: send several requests")
    return [_entry(each, f"events[{n}]") for n, each in enumerate(listed)]


def _entry(said: Any, where: str) -> Entry:
    if not isinstance(said, dict) or not isinstance(said.get("id"), str):
        raise _bad(f"{where}.id", f"expected {{'id': '...'}} as the list gives it, not {said!r:.60}")
    known = ("id", "event", "patch", "stream")
    for name, value in said.items():
        if name not in known:
            raise _bad(f"{where}.{name}", f"unknown field {name!r:.60}{did_you_mean(name, known)}")
        if name in ("event", "patch") and value is not None and not isinstance(value, dict):
            raise _bad(f"{where}.{name}", f"expected an object, not {value!r:.60}")
    if said.get("event") is not None and said.get("patch") is not None:
        raise _bad(where, "expected an event or a patch, not both")
    stream = said.get("stream")
    if stream is not None and not isinstance(stream, str):
        raise _bad(f"{where}.stream", f"expected the name of a raw stream, not {stream!r:.60}")
    return Entry(said["id"], said.get("event"), said.get("patch"), stream)


# What is wrong --------------------------------------------------------------------------------


def _bad(pointer: str, detail: str) -> Problem:
    where = f"{pointer}: {detail}" if pointer else detail
    errors = [{"pointer": pointer, "detail": detail}]
    return Problem(422, "bad-replay", "This can't be sent again", where, errors)


def _nothing_sent(plan: Plan) -> Problem:
    errors = [
        {"index": n, "id": each.id, "pointer": violation.path, "detail": violation.message}
        for n, each in plan.refused
        for violation in each.errors
    ]
    first = "; ".join(f"events[{each['index']}]: {each['pointer']}: {each['detail']}" for each in errors[:3])
    detail = f"nothing was sent: {len(plan.refused)} of {len(plan.outcomes)} can't be: {first}"
    return Problem(422, "bad-replay", "This can't be sent again", detail, errors)


def _refused(stream: str, ids: list[str], receipt: Receipt) -> dict[str, Outcome]:
    """Ingest judged otherwise: the stream was changed meanwhile."""
    errors = tuple(Violation(each.path, each.message) for each in receipt.errors)
    return {id_: Outcome(id_, "refused", stream, errors) for id_ in ids}
