"""`GET /v1/semantics`: what a term means here, how related others are to it, and by what."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from tidegate.filters.meaning import NO_SEMANTICS
from tidegate.gateway.auth.callers import caller_of
from tidegate.gateway.http.problems import Problem
from tidegate.gateway.routes.dependencies import Serving
from tidegate.semantics.looking import look

MOST_LETTERS = 200
"""Of a term or a tag."""
MOST_TERMS = 50
"""Terms that one is compared with, and tags of a theme."""

_Text = Annotated[str, Query(max_length=MOST_LETTERS)]


router = APIRouter(prefix="/v1", tags=["semantics"])


@router.get("/semantics", summary="What a term means, how related others are to it, and by which concepts")
async def _semantics(
    gateway: Serving,
    request: Request,
    term: Annotated[str, Query(min_length=1, max_length=MOST_LETTERS, description="A term, of one word or more.")],
    to: Annotated[list[_Text] | None, Query(max_length=MOST_TERMS, description="What to relate it to.")] = None,
    theme: Annotated[list[_Text] | None, Query(max_length=MOST_TERMS, description="The theme it is in.")] = None,
    to_theme: Annotated[
        list[_Text] | None, Query(max_length=MOST_TERMS, description="That of the others; else the same.")
    ] = None,
    count: Annotated[int, Query(ge=0, le=100, description="Concepts and near terms at most.")] = 10,
) -> dict[str, Any]:
    if gateway.semantics is None:
        detail = f"likeness of meaning (~) is not known here: {NO_SEMANTICS}"
        raise Problem(404, "no-semantics", "Nothing here knows what words mean", detail)
    work = partial(look, gateway.semantics, term, theme or (), to or (), to_themes=to_theme, count=count)
    return await gateway.executors.heavy(caller_of(request), work)
