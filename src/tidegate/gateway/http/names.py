"""Names of query parameters where a wrong one would be dangerous: a filter that nobody reads lets everything through.

What is known by another name is taken for what it means; what nobody knows is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from tidegate.errors import did_you_mean
from tidegate.gateway.http.problems import Problem

KEY = "access_token"
"""What is for those who let somebody in, and no call's own."""

PARAM, SELECT = "param", "select"
"""What may stand there several times."""

OTHERS = {"params": "param", "since": "from", "limit": "max", "ack": "cursor"}
"""What a parameter is called elsewhere, here or in other products. Letters' case, `-` and `_` do not matter."""


def understood(pairs: Iterable[tuple[str, str]], known: Collection[str]) -> list[tuple[str, str]]:
    """Parameters by the names that a call knows them by.

    >>> understood([("lastEventId", "abc"), ("params", "60")], ["Last-Event-ID", "param"])
    [('Last-Event-ID', 'abc'), ('param', '60')]
    >>> understood([("params", '[60, "B17"]')], ["param"])
    [('param', '60'), ('param', 'B17')]
    """
    names = {_folded(each): each for each in known}
    names |= {other: name for other, name in OTHERS.items() if name in known and other not in names}
    found: list[tuple[str, str]] = []
    for said, value in pairs:
        name = said if said == KEY else names.get(_folded(said))
        if name is None:
            detail = f"unknown parameter {said!r:.60}; expected {', '.join(known)}{did_you_mean(said, [*known])}"
            raise Problem(400, "bad-parameter", "A parameter can't be used", detail, parameter=said)
        found += [(name, each) for each in _values(_folded(said), value)]
    return _once(found)


def _once(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same with what may stand but once standing once: attributes together, of all else no two."""
    selected = ",".join(value for name, value in found if name == SELECT)
    rest = [each for each in found if each[0] != SELECT]
    names = [name for name, _ in rest if name != PARAM]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            detail = f"{name}: expected once, not {names.count(name)} times"
            raise Problem(400, "bad-parameter", "A parameter can't be used", detail, parameter=name)
    return [*rest, (SELECT, selected)] if len(rest) < len(found) else rest


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _values(name: str, value: str) -> list[str]:
    """One, but for a list in JSON of all of a filter's parameters at once."""
    if name != "params" or not value.lstrip().startswith("["):
        return [value]
    try:
        listed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return [value]
    return [each if isinstance(each, str) else orjson.dumps(each).decode() for each in listed]


class NamedRoute(APIRoute):
    """A route that knows the names of its parameters, where it is for events."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request, whose parameters have been understood."""
        answer = super().get_route_handler()
        if not self.path.endswith("/events"):
            return answer
        known = [each.alias for each in self.dependant.query_params]

        async def named(request: Request) -> Response:
            pairs = request.query_params.multi_items()
            if not pairs:
                return await answer(request)
            scope = {**request.scope, "query_string": urlencode(understood(pairs, known)).encode()}
            return await answer(Request(scope, request.receive))

        return named
