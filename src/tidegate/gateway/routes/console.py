"""`/`: the console, a page and its modules, as files of this package; a client of the API as any other.

The page may load and ask for nothing but what comes from here, can be in no other
page, and runs no script that is not one of these files, whatever an event says.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import APIRouter, Request, Response

from tidegate.gateway.http.problems import Problem

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
    "cache-control": "no-cache",  # asked for each time, and answered with 304 until it is another
}


def router() -> APIRouter:
    """The routes; all files are read now, and none later."""
    routes = APIRouter(include_in_schema=False)
    files = {
        path.relative_to(FOLDER).as_posix(): (path.read_bytes(), TYPES[path.suffix])
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in TYPES
    }
    tags = {name: f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"' for name, (body, _) in files.items()}

    def answer(request: Request, name: str) -> Response:
        if name not in files:
            raise Problem(404, "not-found", "There is no such thing", f"the console has no file {name[:100]!r}")
        headers = {**HEADERS, "etag": tags[name]}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        body, kind = files[name]
        return Response(body, headers=headers, media_type=kind)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return answer(request, PAGE)

    @routes.api_route("/console/{name:path}", methods=["GET", "HEAD"])
    async def file(request: Request, name: str) -> Response:
        return answer(request, name)

    return routes
