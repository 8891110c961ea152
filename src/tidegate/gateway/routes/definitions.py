"""`POST /v1/apply`: applies whole service files, all or nothing, like `tidegate apply`."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request

from tidegate.gateway.auth.callers import caller_of
from tidegate.gateway.http.bodies import need_short, unreadable
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.routes.untrusted import apply_untrusted
from tidegate.registry import AppliedChanges
from tidegate.services import load_texts

router = APIRouter(prefix="/v1", tags=["services"])


@router.post(
    "/apply",
    summary="Apply a service file, all or nothing: YAML or JSON, or several as {files: {NAME: TEXT}}",
    responses={
        409: {"description": "Subscribers would be broken, or something is still read"},
        413: {"description": "Too large"},
        422: {"description": "Problems in the file, each with its line"},
    },
)
async def _apply(
    gateway: Serving,
    request: Request,
    force: Annotated[bool, Query(description="Also where subscribers would be broken.")] = False,
    prune: Annotated[bool, Query(description="Remove all that the files do not name.")] = False,
    backfill: Annotated[bool, Query(description="Run new and changed services over the history first.")] = False,
    name: Annotated[str, Query(description="What problems call the file.")] = "<body>",
) -> dict[str, dict[str, int]]:
    body, caller = await request.body(), caller_of(request)

    def change() -> AppliedChanges:
        texts = _texts(body, name)
        return apply_untrusted(gateway, caller, load_texts(texts), force=force, prune=prune, backfill=backfill)

    changes = await gateway.executors.heavy(caller, change)
    await gateway.refresh()
    return changes.to_dict()


def _texts(body: bytes, name: str) -> dict[str, str]:
    """Return the service files in a body, by name. A body with the single member `files` has several."""
    if not body.strip():
        raise unreadable("expected a service file, and the body is empty")
    try:
        document = orjson.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and document.keys() == {"files"}:
        files = document["files"]
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise unreadable("files: expected the text of each file by its name")
        need_short(*(file.encode("utf-8", "surrogatepass") for file in files.values()))
        return files
    need_short(body)
    try:
        return {name: body.decode()}
    except UnicodeDecodeError as error:
        raise unreadable(f"expected UTF-8: {error}") from error
