"""What a request's body says."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from tidegate.gateway.problems import Problem
from tidegate.services import text
from tidegate.services.findings import Findings

_BODY = "body"

MOST_DEFINITION_BYTES = 4 * 1024 * 1024
"""Of service files that are sent together."""


async def body_of(request: Request, most_bytes: int) -> bytes:
    """The body of a request, unless it is too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            detail = f"expected at most {most_bytes:,} bytes in one request: send several"
            raise Problem(413, "too-large", "The request is too large", detail)
        parts.append(part)
    return b"".join(parts)


async def document_of(request: Request, most_bytes: int) -> Any:
    """The value that a body is, read as a service file is: JSON is YAML."""
    findings = Findings(file=_BODY)
    found = None
    try:
        found = text.read((await body_of(request, most_bytes)).decode(), _BODY, findings)
    except UnicodeDecodeError:
        findings.blame((), "expected UTF-8 text")
    if findings.problems:
        detail = "; ".join(map(str, findings.problems))
        raise Problem(400, "bad-body", "The body can't be read", f"expected JSON or YAML: {detail}")
    return found
