"""Converts errors into RFC 9457 problem documents. Only this module maps errors to status codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from tidegate.errors import (
    BodyTooLarge,
    BreakingChange,
    CursorError,
    DefinitionError,
    DefinitionProblem,
    DiscoveryError,
    EndedSubscription,
    EventError,
    FederationError,
    FilterError,
    IngestError,
    LanguageError,
    LinkRefused,
    LogError,
    LogUnreachable,
    MediaTypeError,
    MissingDependency,
    NotAcknowledged,
    NotRegistered,
    Overloaded,
    RegistryError,
    RegistryUnreachable,
    SchemaError,
    StreamConflict,
    SubscriptionError,
    TidegateError,
    UnknownStream,
    VersionConflict,
    WebhookError,
)

MEDIA_TYPE = "application/problem+json"
MAX_SHOWN_CHARACTERS, MAX_SHOWN_PROBLEMS = 1_000, 100
"""How much of a caller's input, and how many problems, an answer repeats."""


class HttpProblem(Exception):  # noqa: N818 - the word of RFC 9457
    """An HTTP error response with a problem document. Routes raise it; `install` turns it into the response."""

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str,
        errors: list[dict[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """`kind` becomes the problem type, for programs. `errors` lists the single errors and where they are."""
        super().__init__(detail)
        self.status, self.headers = status, dict(headers or {})
        self.document: dict[str, Any] = {
            "type": f"urn:tidegate:problem:{kind}",
            "title": title,
            "status": status,
            "detail": detail,
            **({"errors": errors} if errors is not None else {}),
            **more,
        }

    def response(self) -> Response:
        """Return the response."""
        return Response(_written(self.document), self.status, self.headers, MEDIA_TYPE)


def _written(document: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError:  # a string has lone surrogates, which UTF-8 can't encode
        return orjson.dumps(_escaped(document), default=str)


def _escaped(value: Any) -> Any:
    """Return a JSON value with lone surrogates escaped as text."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case Mapping():
            return {_escaped(name): _escaped(member) for name, member in value.items()}
        case list() | tuple():
            return [_escaped(item) for item in value]
    return value


def forbidden(detail: str) -> HttpProblem:
    """Return the `HttpProblem` (403) for a call that the caller may not make."""
    return HttpProblem(403, "forbidden", "That is not open to you", detail)


def bad_parameter(name: str, value: str, expected: str) -> HttpProblem:
    """Return the `HttpProblem` (400) for an invalid query parameter."""
    shown = value[:MAX_SHOWN_CHARACTERS]
    detail = f"{name}: expected {expected}, not {shown!r}"
    return HttpProblem(400, "bad-parameter", "A parameter can't be used", detail, parameter=name, value=shown)


def of(error: TidegateError) -> HttpProblem:
    """Return the problem of an error of ours. Unknown subclasses become a 500."""
    return _with_places(error) or _without_places(error)


def _with_places(error: TidegateError) -> HttpProblem | None:
    """Return the problem of an error that points at parts of the request; None for other errors."""
    match error:
        case FilterError():
            errors = [{"pointer": "filter", **place} for place in _places(error)]
            return HttpProblem(400, "bad-filter", "The filter can't be used", str(error), errors, text=error.text)
        case LanguageError():
            return HttpProblem(400, "bad-expression", "The expression can't be used", str(error), _places(error))
        case EventError():
            errors = [{"pointer": violation.path, "detail": violation.message} for violation in error.violations]
            return HttpProblem(422, "bad-event", "An event does not fit its schema", str(error), errors)
        case DefinitionError():
            errors = [_definition(problem) for problem in error.problems]
            return HttpProblem(422, "bad-definition", "The definition can't be used", str(error), errors)
        case SubscriptionError():
            errors = [{"pointer": problem.path, "detail": problem.message} for problem in error.problems]
            return HttpProblem(422, "bad-subscription", "The subscription can't be used", str(error), errors)
        case DiscoveryError():
            errors = [{"pointer": problem.path, "detail": problem.message} for problem in error.problems]
            return HttpProblem(422, "bad-request-for-services", "The request can't be used", str(error), errors)
        case WebhookError():
            errors = [{"pointer": "deliver.webhook.url", "detail": str(error)}]
            return HttpProblem(422, "bad-webhook", "The webhook can't be used", str(error), errors)
    return None


def _without_places(error: TidegateError) -> HttpProblem:
    match error:
        case CursorError():
            return HttpProblem(400, "bad-cursor", "The cursor can't be used", str(error))
        case EndedSubscription():
            return HttpProblem(410, "subscription-ended", "The subscription can't go on", str(error))
        case VersionConflict():
            detail = str(error)
            return HttpProblem(409, "version-conflict", "It was changed meanwhile", detail, version=error.present)
        case BreakingChange():
            return HttpProblem(409, "breaking-change", _breaking_title(error), str(error))
        case NotRegistered() | UnknownStream():
            return HttpProblem(404, "not-found", "There is no such thing", str(error))
        case RegistryUnreachable():
            # The message names the host of the database, which is not for callers.
            title, detail = "The registry can't be reached", "the registry does not answer at the moment; try again"
            return HttpProblem(503, "registry-unreachable", title, detail, headers={"retry-after": "5"})
        case RegistryError():
            return HttpProblem(409, "conflict", "The registry won't do that", str(error))
        case MediaTypeError():
            return HttpProblem(415, "bad-media-type", "The content type can't be read", str(error))
        case StreamConflict():
            return HttpProblem(409, "conflict", "The stream is written by another", str(error))
        case Overloaded():
            return HttpProblem(429, "overloaded", "Too much at once", str(error), headers={"retry-after": "1"})
        case LogUnreachable():
            return HttpProblem(
                503, "log-unreachable", "The log can't be reached", str(error), headers={"retry-after": "5"}
            )
        case NotAcknowledged() | LogError():
            return HttpProblem(503, "not-acknowledged", "Not acknowledged", str(error), headers={"retry-after": "1"})
        case BodyTooLarge():
            return HttpProblem(413, "too-large", "The request is too large", str(error))
        case IngestError():
            return HttpProblem(400, "bad-body", "The body can't be read", str(error))
        case LinkRefused():
            title = "The link would close a loop"
            return HttpProblem(409, "link-refused", title, str(error), loop=list(error.loop), said_by=error.by)
        case FederationError():
            return HttpProblem(400, "bad-link", "The link can't be made so", str(error))
        case SchemaError():
            return HttpProblem(422, "bad-schema", "The schema can't be used", str(error))
        case MissingDependency():
            return HttpProblem(501, "not-installed", "A part is not installed", str(error))
    return HttpProblem(500, "internal", "Something went wrong", str(error))


def _definition(problem: DefinitionProblem) -> dict[str, Any]:
    """Return one problem of a definition, with its file and line if it was parsed from a text."""
    place = {} if problem.line is None else {"file": problem.file, "line": problem.line}
    return {"pointer": problem.path, "detail": problem.message, **place}


def _places(error: LanguageError) -> list[dict[str, Any]]:
    return [
        {"detail": problem.message, "at": problem.at, "text": error.text[problem.at : problem.at + problem.length]}
        for problem in error.problems[:MAX_SHOWN_PROBLEMS]
    ]


def _methods(app: FastAPI, path: str) -> list[str]:
    """Return the methods that a path supports."""
    paths = app.openapi()["paths"].items()
    return sorted(
        {method.upper() for template, calls in paths if compile_path(template)[0].match(path) for method in calls}
    )


def install(app: FastAPI) -> None:
    """Register the handlers that answer every error with a problem document."""

    async def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, TidegateError)
        return of(error).response()

    async def raised(_: Request, error: Exception) -> Response:
        assert isinstance(error, HttpProblem)
        return error.response()

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title, headers = str(error.detail), dict(error.headers or {})
        if error.status_code == 405:  # Starlette names the methods of the first route of this path alone
            headers["Allow"] = ", ".join(_methods(app, request.scope["path"]))
            detail = f"{request.method} can't be asked of {request.scope['path']!r:.200}; expected {headers['Allow']}"
            return HttpProblem(405, "http", title, detail, headers=headers).response()
        return HttpProblem(error.status_code, "http", title, title, headers=headers).response()

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"pointer": "/".join(map(str, problem["loc"])), "detail": problem["msg"]} for problem in error.errors()
        ]
        detail = "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors)
        return HttpProblem(422, "bad-request", "The request can't be used", detail, errors).response()

    app.add_exception_handler(TidegateError, ours)
    app.add_exception_handler(HttpProblem, raised)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def _breaking_title(error: BreakingChange) -> str:
    if error.changes:
        return "The change would break subscribers"
    return "The change would break producers" if error.streams else "The change would lose the state of a service"
