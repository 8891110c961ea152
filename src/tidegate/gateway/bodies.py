"""What a request's body says."""

from __future__ import annotations

from typing import Any

import yaml
from fastapi import Request

from tidegate.gateway.problems import Problem

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
    """The value that a body is in JSON or YAML."""
    try:
        return yaml.safe_load(await body_of(request, most_bytes))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Problem(400, "bad-body", "The body can't be read", f"expected JSON or YAML: {error}") from error
