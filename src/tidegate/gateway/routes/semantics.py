"""`GET /v1/semantics`: the concepts of a term, and its relatedness to other terms."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from tidegate.filters.meaning import NO_SEMANTICS
from tidegate.gateway.auth.callers import caller_of
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.routes.dependencies import Serving
from tidegate.semantics.looking import look

MAX_TERM_LENGTH = 200
"""Characters of a term or tag."""
MAX_TERMS = 50
"""Terms to compare with, and tags of a theme."""

_Text = Annotated[str, Query(max_length=MAX_TERM_LENGTH)]


router = APIRouter(prefix="/v1", tags=["semantics"])


@router.get("/semantics", summary="What a term means, how related others are to it, and by which concepts")
async def _semantics(
    gateway: Serving,
    request: Request,
    term: Annotated[str, Query(min_length=1, max_length=MAX_TERM_LENGTH, description="A term, of one word or more.")],
    to: Annotated[list[_Text] | None, Query(max_length=MAX_TERMS, description="What to relate it to.")] = None,
    theme: Annotated[list[_Text] | None, Query(max_length=MAX_TERMS, description="The theme it is in.")] = None,
    to_theme: Annotated[
        list[_Text] | None, Query(max_length=MAX_TERMS, description="That of the others; else the same.")
    ] = None,
    count: Annotated[int, Query(ge=0, le=100, description="Concepts and near terms at most.")] = 10,
) -> dict[str, Any]:
    if gateway.semantics is None:
        detail = f"likeness of meaning (~) is not known here: {NO_SEMANTICS}"
        raise HttpProblem(404, "no-semantics", "Nothing here knows what words mean", detail)
    work = partial(look, gateway.semantics, term, theme or (), to or (), to_themes=to_theme, count=count)
    return await gateway.executors.heavy(caller_of(request), work)
