"""Feeds a raw stream from an HTTP endpoint that is asked again and again.

An event is known by a hash of its content. One that the response before had, too, is not appended again, also after a
restart: the hashes of the last response are a part of the stored position.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import orjson

from tidegate.errors import SourceError
from tidegate.ingress.connections import HttpConnection
from tidegate.ingress.feeds.feed import FeedRequest
from tidegate.ingress.feeds.payloads import Decoded, PayloadDecoder
from tidegate.ingress.feeds.resume_position import ResumePosition
from tidegate.ingress.raw_streams import Input, RawStreamWriter
from tidegate.logs.clock import Clock, SystemClock
from tidegate.services.definitions import Poll

MAX_RESPONSE_BYTES = 64 << 20
MAX_EVENTS = 200_000
"""Events of one response: their hashes are kept until the next one."""
TIMEOUT_S = 10.0
"""For the connection, and for each part of a response."""
RESPONSE_TIMEOUT_S = 60.0
"""For a whole response."""
_CHUNK_BYTES = 64 << 10

_log = logging.getLogger(__name__)


def make_feed(request: FeedRequest) -> PollFeed:
    """Build the feed of a stream that polls an endpoint."""
    source, context, connection = request.stream.source, request.context, None
    assert isinstance(source, Poll)
    if source.connection is not None:
        connection = context.resources.connection(source.connection, HttpConnection)
    else:
        request.need_operator()
    return PollFeed(source, request.writer, context.state, context.clock, connection)


class PollFeed:
    """Appends the events of responses. The id of an event without one is a hash of its content."""

    def __init__(
        self,
        source: Poll,
        writer: RawStreamWriter,
        state: Path | None = None,
        clock: Clock | None = None,
        connection: HttpConnection | None = None,
    ) -> None:
        """`connection` is the one that the source names; None: the source states its URL itself."""
        self._source, self._writer, self._clock = source, writer, clock or SystemClock()
        self._endpoint = Endpoint(source, connection)
        self._decoder = PayloadDecoder(writer.stream.schema, source, source.format)
        self._position = ResumePosition(writer, self._endpoint.shown, state)

    def run(self, stop: Event) -> None:
        """Append until `stop` is set. Raises SourceError if the endpoint does not answer as it should."""
        seen = set(self._position.load().get("seen", ()))
        while not stop.is_set():
            body = self._endpoint.get(stop)
            if body is not None and not stop.is_set():
                seen = self._append(events_of(body, self._source, self._decoder), seen)
                self._position.clear_stored()
                self._position.save({"seen": sorted(seen)})
            self._clock.wait(stop, self._source.every_s)

    def _append(self, events: Iterable[Decoded], seen: set[str]) -> set[str]:
        """Append the events that the last response did not have, and return the ids of all."""
        ids = {f"poll:{hashlib.sha256(event.raw).hexdigest()[:24]}": event for event in events}
        new = {id_: event for id_, event in ids.items() if id_ not in seen}
        good = [Input(event.raw, id_) for id_, event in new.items() if event.reason is None]
        inputs = self._position.without_stored(good)
        if inputs:
            self._writer.append_inputs(inputs)
        bad = [Input(event.raw, id_) for id_, event in new.items() if event.reason is not None]
        refused = self._position.without_stored(bad)
        self._writer.refuse([self._writer.refusal(raw, new[id_].reason or "", id_) for raw, id_ in refused if id_])
        return set(ids)


def events_of(body: bytes, source: Poll, decoder: PayloadDecoder) -> list[Decoded]:
    """Return the events of a response. Raises SourceError if it has no such events, or too many."""
    if source.format != "json":
        events = decoder.decode(body) if body.strip() else []
    else:
        try:
            orjson.loads(body)
            value: Any = json.loads(body)  # unlike orjson, it keeps all digits of long integers
        except (ValueError, RecursionError) as exc:
            raise SourceError(f"the response is not JSON: {exc}") from exc
        for key in source.items.split(".") if source.items else ():
            if not isinstance(value, dict) or key not in value:
                raise SourceError(f"items: the response has no {key!r} of {source.items!r}")
            value = value[key]
        items = value if isinstance(value, list) else [value]
        events = [event for item in items[: MAX_EVENTS + 1] for event in decoder.decode(_text(item))]
    if len(events) > MAX_EVENTS:
        raise SourceError(f"the response has more than {MAX_EVENTS:,} events")
    return events


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


class Endpoint:
    """The URL of a source, and the validators of its last response."""

    def __init__(self, source: Poll, connection: HttpConnection | None) -> None:
        self._url, self._token = source.url, None
        if connection is not None:
            self._url, self._token = f"{connection.url.rstrip('/')}/{source.url.lstrip('/')}", connection.token
        parts = urlsplit(self._url)
        self.shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
        """The URL without its query, which may have a key."""
        self._validators: dict[str, str] = {}
        # No proxies of the environment, and no redirects: they could lead to another host, with the token.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)

    def get(self, stop: Event) -> bytes | None:
        """Return the body of a response; None if it has not changed. Raises SourceError."""
        headers = {"user-agent": "tidegate", "accept-encoding": "identity", **self._validators}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token.reveal()}"
        request = urllib.request.Request(self._url, headers=headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise SourceError(f"{self.shown} answers with a compressed body, which was not asked for")
                body = self._body(response, stop)
                found = {"if-none-match": "etag", "if-modified-since": "last-modified"}
                self._validators = {to: response.headers[name] for to, name in found.items() if response.headers[name]}
                return body
        except urllib.error.HTTPError as exc:
            with exc:
                if exc.code == 304:
                    return None
                where = f" to {exc.headers['location']!r:.100}" if 300 <= exc.code < 400 else ""
                raise SourceError(f"{self.shown} answered {exc.code}{where}") from None
        except (OSError, ValueError, http.client.HTTPException) as exc:
            reason = getattr(exc, "reason", exc)
            raise SourceError(f"can't read {self.shown}: {reason or type(exc).__name__}") from None

    def _body(self, response: Any, stop: Event) -> bytes:
        pieces, size, deadline_s = [], 0, time.monotonic() + RESPONSE_TIMEOUT_S
        while not stop.is_set() and (piece := response.read1(_CHUNK_BYTES)):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_RESPONSE_BYTES:
                raise SourceError(f"{self.shown} answers with more than {MAX_RESPONSE_BYTES} bytes")
            if time.monotonic() > deadline_s:
                raise SourceError(f"{self.shown} takes more than {RESPONSE_TIMEOUT_S:g} s for a response")
        if response.length and not stop.is_set():
            raise SourceError(f"{self.shown} ended its response {response.length} bytes early")
        return b"".join(pieces)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
