# Generated from async_client/connection.py by scripts/generate_sync_client.py; do not edit.
"""HTTP requests of one client to one gateway."""

from __future__ import annotations

from typing import Any, BinaryIO

import httpx

from tidegate.client import responses
from tidegate.client.endpoint import auth_headers, checked_url, tls_verification
from tidegate.client.reconnect import Reconnect
from tidegate.client.requests.request import ApiRequest
from tidegate.client.tls import Cert, Verify


class GatewayConnection:
    """Sends requests over a pool of connections. May be shared by several threads."""

    def __init__(
        self, url: str, key: str | None, timeout_s: float, reconnect: Reconnect, verify: Verify, cert: Cert
    ) -> None:
        """Raises ClientError if the URL, the key or a TLS file can't be used. Does not connect."""
        self.url = checked_url(url)
        self.reconnect = reconnect
        self._timeout_s = timeout_s
        self._http = httpx.Client(
            base_url=self.url,
            headers=auth_headers(key),
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=None),  # each open subscription occupies one
            verify=tls_verification(self.url, verify, cert),
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, request: ApiRequest) -> dict[str, Any]:
        """Return the JSON object of the response. Raises the ClientError that fits the failure."""
        try:
            response = self._http.send(self._http_request(request, self._timeout_s + request.wait_s))
        except httpx.TransportError as error:
            raise responses.transport_error(self.url, error) from error
        return responses.json_document(response)

    def open_stream(self, request: ApiRequest) -> httpx.Response:
        """Return a response whose body is an event stream that has not been read; the caller closes it.

        Raises the ClientError that fits the failure, also if the response is not an event stream.
        """
        try:
            response = self._http.send(self._http_request(request, self.reconnect.silence_s), stream=True)
            if response.status_code != 200:
                response.read()
        except httpx.TransportError as error:
            raise responses.transport_error(self.url, error) from error
        stream_error = responses.stream_error(response)
        if stream_error is not None:
            response.close()
            raise stream_error
        return response

    def download(self, request: ApiRequest, file: BinaryIO) -> None:
        """Write the body of the response to a file, piece by piece.

        Raises the ClientError that fits the failure, also if the body is incomplete.
        """
        http_request = self._http_request(request, self._timeout_s + request.wait_s)
        try:
            response = self._http.send(http_request, stream=True)
            try:
                if response.status_code != 200:
                    response.read()
                    raise responses.problem_error(response)
                for piece in response.iter_bytes():
                    file.write(piece)
            finally:
                response.close()
        except httpx.TransportError as error:
            raise responses.transport_error(self.url, error) from error

    def _http_request(self, request: ApiRequest, read_timeout_s: float) -> httpx.Request:
        return self._http.build_request(
            request.method,
            request.path,
            params=list(request.params),
            headers=dict(request.headers),
            content=request.body,
            timeout=httpx.Timeout(self._timeout_s, read=read_timeout_s),
        )
