"""Parses request bodies. Bodies that take more than some milliseconds are parsed in the heavy pool."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request

from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.http.executors import Executors
from tidegate.gateway.http.problems import HttpProblem
from tidegate.services import text
from tidegate.services.findings import Findings

MAX_YAML_BYTES = 256 * 1024
"""Dense YAML is parsed at about 50 KB per second, in pure Python. JSON is limited by the size of a body only."""
MAX_DEPTH = 100
"""Nesting depth of JSON: far more than any document of ours has, and less than Python's recursion limit."""
LONG_BYTES = 64 * 1024
"""Bodies of this size or more are parsed in the heavy pool."""

_BODY = "body"


async def json_of(request: Request, executors: Executors | None = None, caller: Caller | None = None) -> Any:
    """Parse a body as JSON; a long one in the heavy pool, if `executors` and `caller` are passed.

    Raises `HttpProblem` (400) if the body is not JSON or nests too deep.
    """
    body = await request.body()
    if len(body) >= LONG_BYTES and executors is not None and caller is not None:
        return await executors.heavy(caller, read_json, body)
    return read_json(body)


def read_json(body: bytes) -> Any:
    """Parse JSON. Raises `HttpProblem` (400) if it is malformed, or nests deeper than `MAX_DEPTH`."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise unreadable(f"expected JSON: {error}") from error
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and not is_shallow(value):
        raise unreadable(f"expected JSON that nests at most {MAX_DEPTH} deep")
    return value


def is_shallow(value: Any) -> bool:
    """True if a JSON value nests at most `MAX_DEPTH` deep. orjson reads 1,024 levels, but writes only 254."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for container in level
            if isinstance(container, dict | list)
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def read_document(body: bytes) -> Any:
    """Parse a body as JSON or YAML, like a service file. May take long: call it in the heavy pool.

    Raises `HttpProblem`: 400 if the body is malformed, 413 if it is too much YAML.
    """
    findings = Findings(file=_BODY)
    document = None
    try:
        need_short(body)
        document = text.read(body.decode(), _BODY, findings)
    except UnicodeDecodeError:
        findings.report((), "expected UTF-8 text")
    if findings.problems:
        detail = "; ".join(map(str, findings.problems))
        raise unreadable(f"expected JSON or YAML: {detail}")
    return document


def need_short(*bodies: bytes) -> None:
    """Raise `HttpProblem` (413) if bodies have too much YAML in all. JSON may be longer."""
    size_bytes = sum(len(body) for body in bodies if body.lstrip()[:1] not in (b"{", b"["))
    if size_bytes > MAX_YAML_BYTES:
        detail = f"expected at most {MAX_YAML_BYTES:,} bytes of YAML, not {size_bytes:,}; send long documents as JSON"
        raise HttpProblem(413, "too-large", "The request is too large", detail, limit=MAX_YAML_BYTES)


def unreadable(detail: str) -> HttpProblem:
    """Return the `HttpProblem` (400) for a malformed body."""
    return HttpProblem(400, "bad-body", "The body can't be read", detail)
