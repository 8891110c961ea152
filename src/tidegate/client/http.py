"""Requests and answers of the API as values: no I/O."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from tidegate.client.errors import ConnectionLost, Refused, Unavailable, Unreachable
from tidegate.client.tls import Cert, Verify, client_context
from tidegate.client.values import Format
from tidegate.errors import ClientError

if TYPE_CHECKING:
    from tidegate.filters import Filter

URL = "http://127.0.0.1:8080"
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"

APPLY_S = 30.0
"""How much longer than others an apply may take: it may wait for another, and import functions."""

Since = str | datetime | timedelta
"""`now`, `beginning`, a moment, or a length of time before now such as `10m`."""

# Statuses that may be others in a moment; all else of 4xx and 5xx stays as it is.
_PASSING = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    wait_s: float = 0.0
    """How much longer than others it may take."""


def request(client: httpx.Client | httpx.AsyncClient, asked: Asked, timeout_s: float, read_s: float) -> httpx.Request:
    """A request as httpx sends it: `timeout_s` for everything but reading, which may take `read_s`."""
    return client.build_request(
        asked.method,
        asked.path,
        params=list(asked.params),
        headers=dict(asked.headers),
        content=asked.body,
        timeout=httpx.Timeout(timeout_s, read=read_s),
    )


def checked_url(url: str) -> str:
    """The URL of a gateway without what its paths bring along.

    >>> checked_url("http://127.0.0.1:8080/")
    'http://127.0.0.1:8080'
    """
    wrong = ClientError(f"expected the URL of a gateway, such as {URL}, not {url!r}")
    if re.match(r"https?://[^/]", url) is None:
        raise wrong
    try:
        port = httpx.URL(url).port
    except httpx.InvalidURL as error:
        raise wrong from error
    if port is not None and port > 65_535:
        raise wrong
    return url.rstrip("/").removesuffix("/v1")


def verification(url: str, verify: Verify, cert: Cert) -> ssl.SSLContext | bool:
    """What httpx needs for the TLS of a URL; of one without TLS no file is read.

    >>> verification("http://127.0.0.1:8080", "no-such-file.pem", None)
    True
    """
    return client_context(verify, cert) if url.startswith("https:") else True


def headers(key: str | None) -> dict[str, str]:
    """What every request has."""
    if key is not None:
        in_a_header("key", key, shown=False)
    return {} if key is None else {"authorization": f"Bearer {key}"}


def in_a_header(name: str, value: str, *, shown: bool = True) -> str:
    """The value, which goes into a header as it is."""
    if not (value.isascii() and value.isprintable()):
        raise ClientError(
            f"{name}: expected printable ASCII, as it was given" + (f", not {value!r:.80}" if shown else "")
        )
    return value


def service_path(name: str, *more: str) -> str:
    """The path of a service, or of something of it."""
    return "/".join(["/v1/services", quote(name, safe=""), *more])


def stream_path(name: str) -> str:
    """Where a raw stream's events go."""
    return f"/v1/streams/{quote(name, safe='')}/events"


def apply(files: str | Mapping[str, str], **flags: bool) -> Asked:
    """The request that applies service files.

    >>> apply("streams: {}", force=True, prune=False).params
    [('force', 'true')]
    """
    query = [(name, "true") for name, wanted in flags.items() if wanted]
    body = files if isinstance(files, str) else json.dumps({"files": dict(files)})
    return Asked("POST", "/v1/apply", query, {"content-type": "application/yaml"}, body.encode(), wait_s=APPLY_S)


def discover(request: Mapping[str, Any], *, watch: bool = False, used: str | None = None) -> Asked:
    """The request that finds services.

    >>> discover({"attributes": ["speed"]}, watch=True).params
    [('watch', 'true')]
    """
    query = [*([("watch", "true")] if watch else []), *([] if used is None else [("used", used)])]
    said = {"content-type": "application/json", **({"accept": SSE} if watch else {})}
    return Asked("POST", "/v1/discover", query, said, json.dumps(dict(request)).encode())


def wanted(
    filter_: str | Filter | None,
    params: Sequence[Any],
    select: str | Sequence[str] | None,
    format_: Format,
) -> list[tuple[str, str]]:
    """What to get of a service, and how, as a query.

    >>> wanted("speed > %0", [60], ["vid", "speed"], "plain")
    [('filter', 'speed > %0'), ('param', '60'), ('select', 'vid,speed'), ('format', 'plain')]
    """
    found: list[tuple[str, str]] = []
    if filter_ is not None:
        found.append(("filter", str(filter_)))
    found += [("param", _param(each)) for each in params]
    if select is not None:
        found.append(("select", select if isinstance(select, str) else ",".join(select)))
    return [*found, ("format", format_)]


def page_of(
    service: str,
    filter_: str | Filter | None,
    params: Sequence[Any],
    cursor: str | None,
    since: Since | None,
    latest: str | None,
    select: str | Sequence[str] | None,
    wait_s: float,
    most: int,
    format_: Format,
    every: float | None = None,
    key: str | None = None,
) -> Asked:
    """The request for a page."""
    query = [*wanted(filter_, params, select, format_), ("max", str(most))]
    if cursor is not None:
        query.append(("cursor", cursor))
    if since is not None:
        query.append(("from", since_text(since)))
    if latest is not None:
        query.append(("latest", latest))
    if every is not None:
        query.append(("every", f"{every:g}s"))
    if key is not None:
        query.append(("key", key))
    if wait_s:
        query.append(("wait", f"{wait_s:.3f}s"))
    return Asked("GET", service_path(service, "events"), query, wait_s=wait_s)


def quarantine_of(
    service: str, rule: str | None, since: Since | None, replayed: bool | None, cursor: str | None, most: int
) -> Asked:
    """The request for a page of what a service has refused."""
    query = [("max", str(most))]
    if rule is not None:
        query.append(("rule", rule))
    if since is not None:
        query.append(("from", since_text(since)))
    if replayed is not None:
        query.append(("replayed", str(replayed).lower()))
    if cursor is not None:
        query.append(("cursor", cursor))
    return Asked("GET", service_path(service, "quarantine"), query)


def replay_of(service: str, said: Mapping[str, Any], mode: str) -> Asked:
    """The request that sends some of it again."""
    path, headers_ = service_path(service, "quarantine", "replay"), {"content-type": "application/json"}
    return Asked("POST", path, [("mode", mode)], headers_, json.dumps(said).encode())


def _param(value: Any) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


def since_text(since: Since) -> str:
    """A beginning as the API has it.

    >>> since_text(timedelta(minutes=10)), since_text("now")
    ('600.000s', 'now')
    """
    match since:
        case datetime():
            if since.tzinfo is None:
                raise ClientError(f"since: expected a moment with a time zone, not {since.isoformat()}")
            return since.isoformat()
        case timedelta():
            return f"{since.total_seconds():.3f}s"
    return since.strip() or "now"


def problem(answer: httpx.Response) -> ClientError:
    """The error that an answer is; its body was read."""
    status = answer.status_code
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "detail" not in document:
        text = f"{answer.request.url} answered {status} {answer.reason_phrase}".rstrip()
        document = {}
    else:
        text = str(document["detail"])
    if status in _PASSING and document.get("quota") != "filter_bytes":  # a filter grows no shorter by waiting
        return Unavailable(text, status, document, _retry_after_s(answer))
    return Refused(text, status, document)


def _retry_after_s(answer: httpx.Response) -> float | None:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def not_a_stream(answer: httpx.Response) -> ClientError | None:
    """What is wrong with the head of an answer that should be server-sent events; None: nothing."""
    kind = answer.headers.get("content-type", "none")
    if kind.partition(";")[0].strip().lower() == SSE:
        return None
    return Refused(f"{answer.request.url} answered with content type {kind}, not {SSE}: is it a gateway?", 200)


def document(answer: httpx.Response) -> dict[str, Any]:
    """The object in an answer that was read."""
    if not answer.is_success:
        raise problem(answer)
    if answer.status_code == 204:
        return {}
    try:
        found = json.loads(answer.content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused(f"{answer.request.url} answered with no JSON object: is it a gateway?", answer.status_code)
    return found


def failed(url: str, error: httpx.TransportError) -> ClientError:
    """What a failure of the transport means to whoever asked."""
    reason = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        why = reason.partition("certificate verify failed: ")[2] or reason
        return Unreachable(
            f"{url} shows a certificate that is not trusted: {why}\n"
            "name the authority that issued it: Client(url, verify=PATH), --ca PATH or TIDEGATE_CA"
        )
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError | httpx.UnsupportedProtocol):
        return Unreachable(
            f"can't reach a gateway at {url}: {reason}\n"
            "start one with `tidegate up`, or name another by its URL: Client(url), --url or TIDEGATE_URL"
        )
    if isinstance(error, httpx.TimeoutException):
        return ConnectionLost(f"{url} has not answered in time")
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and url.startswith("https:"):
        reason += (
            "\nif you show a client certificate: a gateway that does not trust its authority ends the connection so"
        )
    return ConnectionLost(f"the connection to {url} was lost: {reason}")
