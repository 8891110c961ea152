"""What a request's body says."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request

from tidegate.gateway.problems import Problem
from tidegate.services import text
from tidegate.services.findings import Findings

_BODY = "body"


async def json_of(request: Request) -> Any:
    """The value that a body is in JSON."""
    try:
        return orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise Problem(400, "bad-body", "The body can't be read", f"expected JSON: {error}") from error


async def document_of(request: Request) -> Any:
    """The value that a body is, read as a service file is: JSON is YAML."""
    findings = Findings(file=_BODY)
    found = None
    try:
        found = text.read((await request.body()).decode(), _BODY, findings)
    except UnicodeDecodeError:
        findings.blame((), "expected UTF-8 text")
    if findings.problems:
        detail = "; ".join(map(str, findings.problems))
        raise Problem(400, "bad-body", "The body can't be read", f"expected JSON or YAML: {detail}")
    return found
