"""What route handlers need besides their parameters: the gateway, and its federation."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from tidegate.federation.link import Federation
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.problems import HttpProblem


async def gateway_of(connection: HTTPConnection) -> Gateway:
    """Return the gateway of the application that a request or WebSocket came to.

    A coroutine, so that FastAPI calls it on the event loop: it runs plain functions in threads.
    """
    gateway: Gateway = connection.app.state.gateway
    return gateway


def federation_of(gateway: Gateway) -> Federation:
    """Return the federation of a gateway. Raises `HttpProblem` (409) if the gateway has no broker name."""
    if gateway.linked is None:
        detail = "this gateway has no broker name, so it has no links: start it with --broker NAME"
        raise HttpProblem(409, "conflict", "There are no links here", detail)
    return gateway.linked.federation


Serving = Annotated[Gateway, Depends(gateway_of)]
"""The type of a handler's `gateway` parameter."""
