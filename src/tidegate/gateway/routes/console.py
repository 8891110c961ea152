"""`/`: the console, a page with its scripts and styles. It uses the public API like any other client.

Its content security policy allows only files and requests of this gateway. The page can't be
framed. It runs only scripts from its own files, so text in events can't inject any.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from tidegate.gateway.http.problems import HttpProblem

FOLDER = Path(__file__).parents[1] / "console"
PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",  # revalidated each time; answered with 304 while unchanged
}


router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """The content of a console file and its response headers."""

    body: bytes
    media_type: str
    etag: str


@cache
def files() -> Mapping[str, ConsoleFile]:
    """Return all files of the console by their path below `FOLDER`. Reads them once per process."""
    return {
        path.relative_to(FOLDER).as_posix(): _read(path) for path in sorted(FOLDER.rglob("*")) if path.suffix in TYPES
    }


@router.api_route("/", methods=["GET", "HEAD"])
async def _page(request: Request) -> Response:
    return _response(request, PAGE)


@router.api_route("/console/{name:path}", methods=["GET", "HEAD"])
async def _file(request: Request, name: str) -> Response:
    return _response(request, name)


def _read(path: Path) -> ConsoleFile:
    body = path.read_bytes()
    return ConsoleFile(body, TYPES[path.suffix], f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"')


def _response(request: Request, name: str) -> Response:
    file = files().get(name)
    if file is None:
        raise HttpProblem(404, "not-found", "There is no such thing", f"the console has no file {name[:100]!r}")
    headers = {**HEADERS, "etag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)
