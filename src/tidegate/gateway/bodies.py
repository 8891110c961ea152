"""What a request's body says.

Bodies are as long as their senders like, up to a limit: what takes longer than some milliseconds to read is read in the
heavy pool, so that the event loop goes on.
"""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request

from tidegate.gateway.callers import Caller
from tidegate.gateway.executors import Executors
from tidegate.gateway.problems import Problem
from tidegate.services import text
from tidegate.services.findings import Findings

MAX_YAML_BYTES = 256 * 1024
"""YAML is read by Python, at some 50 KB in a second where it is dense; JSON may have all that a body may."""
MAX_DEPTH = 100
"""Of JSON: far more than anything here has, and less than Python's stack."""
LONG_BYTES = 64 * 1024
"""Bodies from here on are read in the heavy pool."""

_BODY = "body"


async def json_of(request: Request, executors: Executors | None = None, caller: Caller | None = None) -> Any:
    """Read a body as JSON; a long one in the heavy pool, where `executors` and `caller` are given."""
    body = await request.body()
    if len(body) >= LONG_BYTES and executors is not None and caller is not None:
        return await executors.heavy(caller, read_json, body)
    return read_json(body)


def read_json(body: bytes) -> Any:
    """Read JSON that nests no deeper than anything here needs."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise unreadable(f"expected JSON: {error}") from error
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and not is_shallow(value):
        raise unreadable(f"expected JSON that nests at most {MAX_DEPTH} deep")
    return value


def is_shallow(value: Any) -> bool:
    """True if a JSON value nests no deeper than anything here needs. orjson reads 1,024 levels, and writes 254."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def read_document(body: bytes) -> Any:
    """Read a body as a service file is read, JSON or YAML. Takes long: call it in the heavy pool."""
    findings = Findings(file=_BODY)
    found = None
    try:
        need_short(body)
        found = text.read(body.decode(), _BODY, findings)
    except UnicodeDecodeError:
        findings.blame((), "expected UTF-8 text")
    if findings.problems:
        detail = "; ".join(map(str, findings.problems))
        raise unreadable(f"expected JSON or YAML: {detail}")
    return found


def need_short(*bodies: bytes) -> None:
    """Refuse YAML that is too long, in one text or in several; JSON may be longer."""
    size_bytes = sum(len(each) for each in bodies if each.lstrip()[:1] not in (b"{", b"["))
    if size_bytes > MAX_YAML_BYTES:
        detail = f"expected at most {MAX_YAML_BYTES:,} bytes of YAML, not {size_bytes:,}; send what is so long as JSON"
        raise Problem(413, "too-large", "The request is too large", detail, limit=MAX_YAML_BYTES)


def unreadable(detail: str) -> Problem:
    """Build the answer to a body that is not what it should be."""
    return Problem(400, "bad-body", "The body can't be read", detail)
