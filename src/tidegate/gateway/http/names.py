"""Checks the names of query parameters. Ignoring an unknown name is dangerous: a misspelt `filter` would match all.

Common alternative names are accepted; unknown names are refused with 400.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from tidegate.errors import did_you_mean
from tidegate.gateway.http.problems import HttpProblem

KEY = "access_token"
"""The query parameter with an API key, which `auth.access` reads."""

PARAM, SELECT = "param", "select"
"""The parameters that may be repeated."""

ALIASES = {"params": "param", "since": "from", "limit": "max", "ack": "cursor"}
"""Alternative names of parameters, from our other calls and other products. Case, `-` and `_` are ignored."""


def canonical(pairs: Iterable[tuple[str, str]], known: Collection[str]) -> list[tuple[str, str]]:
    """Return query parameters under the names in `known`. Raises `HttpProblem` (400) for unknown or repeated ones.

    >>> canonical([("lastEventId", "abc"), ("params", "60")], ["Last-Event-ID", "param"])
    [('Last-Event-ID', 'abc'), ('param', '60')]
    >>> canonical([("params", '[60, "B17"]')], ["param"])
    [('param', '60'), ('param', 'B17')]
    """
    names = {_folded(name): name for name in known}
    names |= {alias: name for alias, name in ALIASES.items() if name in known and alias not in names}
    parameters: list[tuple[str, str]] = []
    for spelling, value in pairs:
        name = spelling if spelling == KEY else names.get(_folded(spelling))
        if name is None:
            hint = did_you_mean(spelling, [*known])
            detail = f"unknown parameter {spelling!r:.60}; expected {', '.join(known)}{hint}"
            raise HttpProblem(400, "bad-parameter", "A parameter can't be used", detail, parameter=spelling)
        parameters += [(name, part) for part in _values(_folded(spelling), value)]
    return _without_repeats(parameters)


def _without_repeats(parameters: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Merge repeated `select` parameters; refuse any other duplicate except `param`."""
    selected = ",".join(value for name, value in parameters if name == SELECT)
    rest = [pair for pair in parameters if pair[0] != SELECT]
    names = [name for name, _ in rest if name != PARAM]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            detail = f"{name}: expected once, not {names.count(name)} times"
            raise HttpProblem(400, "bad-parameter", "A parameter can't be used", detail, parameter=name)
    return [*rest, (SELECT, selected)] if len(rest) < len(parameters) else rest


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _values(name: str, value: str) -> list[str]:
    """Return the values of a parameter: one, or all items if `params` is a JSON list."""
    if name != "params" or not value.lstrip().startswith("["):
        return [value]
    try:
        listed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return [value]
    return [item if isinstance(item, str) else orjson.dumps(item).decode() for item in listed]


class NamedRoute(APIRoute):
    """A route that checks the names of its query parameters if its path ends with `/events`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, which sees parameters under their canonical names."""
        handler = super().get_route_handler()
        if not self.path.endswith("/events"):
            return handler
        names = [parameter.alias for parameter in self.dependant.query_params]

        async def named(request: Request) -> Response:
            pairs = request.query_params.multi_items()
            if not pairs:
                return await handler(request)
            scope = {**request.scope, "query_string": urlencode(canonical(pairs, names)).encode()}
            return await handler(Request(scope, request.receive))

        return named
