"""The private methods of uvicorn that our protocols override, and the versions to which the extra binds them."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tests.gateway.test_httpx_internals import version_bounds
from tidegate.gateway.transports.protocol import SocketProtocol, WebSocketProtocol


@pytest.mark.parametrize("name", ["_start_asgi_task", "handle_websocket_upgrade", "send_400_response"])
def test_http_protocol_overrides_a_method_that_uvicorn_has(name: str) -> None:
    assert hasattr(HttpToolsProtocol, name)
    assert name in vars(SocketProtocol)


def test_websocket_protocol_extends_the_one_of_uvicorn() -> None:
    assert issubclass(WebSocketProtocol, WebSocketsSansIOProtocol)


def test_server_extra_bounds_uvicorn_and_allows_the_installed_version() -> None:
    bounds = version_bounds("server", "uvicorn")
    assert {bound.operator for bound in bounds} == {">=", "<"}
    assert version("uvicorn") in bounds
    assert uvicorn.__version__ in bounds
