"""A gateway without keys serves programs and pages of its own machine only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.gateway.running import World
from tests.security.processes import Running, create_key, gateway, tidegate, write_profile
from tidegate.gateway.auth.loopback import is_loopback_host
from tidegate.gateway.settings import AccessSettings

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("open-gateway")]

CITY = "streams: {gps_taxi: {schema: {vid: string}}}\nservices: {gps: {from: gps_taxi}}\n"
PATHS = ("/v1/services", "/v1/streams/gps_taxi", "/", "/metrics", "/openapi.json", "/asyncapi.json", "/readyz")


@pytest.fixture(scope="module")
def open_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real gateway process on loopback, without keys."""
    folder = tmp_path_factory.mktemp("open")
    (folder / "city.yaml").write_text(CITY)
    applied = tidegate("apply", folder / "city.yaml", data=folder / "data")
    assert applied.returncode == 0, applied.stderr
    with gateway(folder / "data") as running:
        yield running


def port_of(running: Running) -> int:
    return httpx.URL(running.url).port or 80


def raw(port: int, *lines: str) -> bytes:
    """Send raw bytes and return the whole response."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
        link.sendall("\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1"))
        return b"".join(iter(lambda: link.recv(65_536), b""))


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# Names -----------------------------------------------------------------------------------------

FOREIGN = [
    *("evil.example", "evil.example:8080", "localhost.evil.com", "127.0.0.1.nip.io", "127.0.0.1.evil.example:80"),
    *("localhost.", "127.0.0.1.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.256", "127.0.0.01"),
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1%25eth0]", "[::2]", "::1", "0.0.0.0", "10.0.0.1", "", "*"),
    *("localhost:", "localhost:99999999", "localhost:80:80", "localhost@evil.example", "evil.example#localhost"),
    *("localhost evil.example", "localhost,evil.example", "xn--lcalhost-54a", "localhost/", "127.0.0.1\t.evil.example"),
]


@pytest.mark.parametrize("host", FOREIGN)
def test_foreign_host_is_refused(open_gateway: Running, host: str) -> None:
    """The page of a site whose name resolves to 127.0.0.1 sends its own name, and no Origin when it reads."""
    for path in PATHS:
        answer = raw(port_of(open_gateway), f"GET {path} HTTP/1.1", f"Host: {host}")
        assert status_of(answer) == 403, (path, answer[:300])
        assert b"gps" not in answer


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.8.9.10:1", "[::1]", "[::1]:8080"])
def test_loopback_host_is_answered(open_gateway: Running, host: str) -> None:
    assert status_of(raw(port_of(open_gateway), "GET /v1/services HTTP/1.1", f"Host: {host}")) == 200


def test_missing_and_duplicate_hosts_are_refused(open_gateway: Running) -> None:
    port = port_of(open_gateway)
    assert status_of(raw(port, "GET /v1/services HTTP/1.1")) == 403
    assert status_of(raw(port, "GET /v1/services HTTP/1.1", "Host: localhost", "Host: localhost")) == 403
    assert status_of(raw(port, "GET /v1/services HTTP/1.1", "Host: localhost", "host: evil.example")) == 403


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/v1/services",
        "http://localhost@evil.example/v1/services",
        "https://localhost.evil.example:80/v1/services",
        "HTTP://EVIL.example/v1/services",
        "//evil.example/v1/services",
    ],
)
def test_target_that_names_another_host_is_refused(open_gateway: Running, target: str) -> None:
    for more in ([], ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]):
        answer = raw(port_of(open_gateway), f"GET {target} HTTP/1.1", "Host: localhost", *more)
        assert status_of(answer) in (400, 404), answer[:300]
        assert b"gps" not in answer
    own = raw(port_of(open_gateway), "GET http://localhost/v1/services HTTP/1.1", "Host: localhost")
    assert status_of(own) == 200


def test_refusal_names_the_remedy(open_gateway: Running) -> None:
    answer = httpx.get(f"{open_gateway.url}/v1/services", headers={"host": "evil.example"})
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:tidegate:problem:not-local"
    assert "the host 'evil.example', which is not loopback" in problem["detail"]
    assert "access: {required: true}" in problem["detail"]


def test_probe_is_answered_under_any_name(open_gateway: Running) -> None:
    answer = httpx.get(f"{open_gateway.url}/livez", headers={"host": "10.1.2.3:8080"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


# Proxies ---------------------------------------------------------------------------------------

FORWARDED = [
    *(
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Server",
        "X-Real-IP",
        "Via",
    ),
    *("CF-Connecting-IP", "CF-Ray", "True-Client-IP", "X-Client-IP", "X-Cluster-Client-IP", "Fastly-Client-IP"),
    *("X-Original-URL", "X-Envoy-External-Address", "X-Amzn-Trace-Id", "X-Azure-ClientIP", "CDN-Loop"),
    *("X_Forwarded_For", "Forwarded-For", "X-HTTP-Forwarded-For", "X-Real_IP", "Ali-CDN-Real-IP", "X-Scheme"),
    *("X-Forwarded", "X-Forwarded-By", "X-Host", "Front-End-Https", "Tailscale-User-Login", "HTTP_CLIENT_IP"),
]


@pytest.mark.parametrize("header", FORWARDED)
def test_forwarded_request_is_refused(open_gateway: Running, header: str) -> None:
    for value in ("127.0.0.1", ""):
        answer = httpx.get(f"{open_gateway.url}/v1/services", headers={header: value})
        assert answer.status_code == 403
        assert f"a proxy passed the request on (it has the header {header.lower()!r})" in answer.json()["detail"]


def test_http_1_0_is_refused_as_nginx_sends_it(open_gateway: Running) -> None:
    """nginx's plain proxy_pass rewrites Host and adds no header, but speaks HTTP/1.0."""
    answer = raw(port_of(open_gateway), "GET /v1/services HTTP/1.0", "Host: 127.0.0.1")
    assert status_of(answer) == 403
    assert b"expected HTTP/1.1" in answer


@asynccontextmanager
async def reverse_proxy(port: int, *, adds: bytes = b"", host: bytes | None = None) -> AsyncIterator[int]:
    """A reverse proxy in front of a gateway: passes bytes on, and edits the head of each connection's first request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        if host is not None:
            lines = [b"Host: " + host if each.lower().startswith(b"host:") else each for each in lines]
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        up_writer.write(b"\r\n".join(lines) + b"\r\n" + adds + b"\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
            target.close()

        await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer), return_exceptions=True)
        for each in (writer, up_writer):
            each.close()
            with contextlib.suppress(OSError):
                await each.wait_closed()

    tasks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("adds", "host"),
    [(b"", None), (b"X-Forwarded-For: 203.0.113.9\r\n", b"127.0.0.1:8080"), (b"Via: 1.1 proxy\r\n", b"localhost")],
)
def test_nothing_gets_through_a_reverse_proxy(open_gateway: Running, adds: bytes, host: bytes | None) -> None:
    async def attack() -> list[int]:
        async with reverse_proxy(port_of(open_gateway), adds=adds, host=host) as proxied:
            public, found = {"host": "tidegate.example.org", "connection": "close"}, []
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{proxied}", headers=public) as http:
                found += [(await http.get(path)).status_code for path in PATHS]
                found.append((await http.put("/v1/streams/mine", json={"schema": {"a": "string"}})).status_code)
                found.append((await http.post("/v1/streams/gps_taxi/events", json={"vid": "B1"})).status_code)
                found.append((await http.post("/v1/links", json={"name": "b", "url": "http://b"})).status_code)
                stream = {"accept": "text/event-stream"}
                found.append((await http.get("/v1/services/gps/events", headers=stream)).status_code)
            return found

    assert set(asyncio.run(attack())) == {403}
    with open_gateway.client() as http:
        assert http.get("/v1/streams/mine").status_code == 404


@pytest.mark.parametrize("path", ["/v1/events", "/v1/services/gps/events", "/v1/links/socket"])
def test_sockets_are_refused_to_other_machines(open_gateway: Running, path: str) -> None:
    address = f"ws://127.0.0.1:{port_of(open_gateway)}{path}"
    for headers in (
        {"Host": "evil.example"},
        {"X-Forwarded-For": "203.0.113.9"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        with pytest.raises(InvalidStatus) as refused:
            connect(address, additional_headers=headers)
        assert refused.value.response.status_code == 403


# Pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", "anything-new"])
def test_request_of_another_sites_page_is_refused(open_gateway: Running, site: str) -> None:
    """Without Origin, as browsers send it for images, scripts and frames."""
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    for path in PATHS:
        answer = httpx.get(f"{open_gateway.url}{path}", headers=headers)
        assert answer.status_code == 403, path
        assert "a page of another site made this request" in answer.json()["detail"]


def test_link_on_another_site_opens_the_console_only(open_gateway: Running) -> None:
    visit = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
        "referer": "https://docs.example/",
    }
    assert httpx.get(f"{open_gateway.url}/", headers=visit).status_code == 200
    assert httpx.get(f"{open_gateway.url}/", headers={**visit, "sec-fetch-dest": "iframe"}).status_code == 403
    assert httpx.get(f"{open_gateway.url}/v1/services", headers=visit).status_code == 403
    assert httpx.get(f"{open_gateway.url}/metrics", headers=visit).status_code == 403
    assert httpx.post(f"{open_gateway.url}/", headers=visit).status_code == 403


def test_page_behind_a_hidden_proxy_is_detected_by_its_referer(open_gateway: Running) -> None:
    headers = {"sec-fetch-site": "same-origin", "referer": "https://tidegate.example.org/console"}
    answer = httpx.get(f"{open_gateway.url}/v1/services", headers=headers)
    assert answer.status_code == 403
    assert "a page of https://tidegate.example.org made this request (Referer)" in answer.json()["detail"]
    own = {"sec-fetch-site": "same-origin", "referer": f"{open_gateway.url}/"}
    assert httpx.get(f"{open_gateway.url}/v1/services", headers=own).status_code == 200


def test_allowed_origin_is_let_in(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.origins = ("https://page.example",)
    with world.running(), world.client() as http:
        page = {"origin": "https://page.example", "sec-fetch-site": "cross-site", "referer": "https://page.example/"}
        assert http.get("/v1/services", headers=page).status_code == 200
        assert http.get("/v1/services", headers={**page, "origin": "https://other.example"}).status_code == 403
        assert http.get("/v1/services", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_names_and_proxies_are_free_where_keys_are_required(tmp_path: Path) -> None:
    data = tmp_path / "data"
    key = create_key(data, "me", "admin")
    with gateway(data, "--profile", write_profile(tmp_path)) as running, running.client(key) as http:
        proxied = {"host": "tidegate.example.org", "x-forwarded-for": "203.0.113.9", "sec-fetch-site": "cross-site"}
        assert http.get("/v1/services", headers=proxied).status_code == 200
        assert httpx.get(f"{running.url}/v1/services", headers=proxied).status_code == 401


# Deployment examples ---------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def requires_keys(document: Any) -> bool:
    return isinstance(document, dict) and bool(document.get("access", {}).get("required"))


def deployed() -> Iterator[tuple[str, list[str]]]:
    """The commands of `deploy/` that start a gateway, with the file that has them."""
    (unit,) = re.findall(r"^ExecStart=\S+ (.*)$", (ROOT / "deploy/tidegate.service").read_text(), re.MULTILINE)
    yield "tidegate.service", unit.split()
    (container,) = re.findall(r"^CMD (\[.*\])$", (ROOT / "deploy/Containerfile").read_text(), re.MULTILINE)
    yield "Containerfile", json.loads(container)
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    for name, service in compose["services"].items():
        if service.get("command", [""])[0] in ("up", "gateway"):
            yield f"compose.yaml, {name}", service["command"]


def test_every_deployment_example_requires_keys() -> None:
    """By the profile that it names, or as it listens beyond loopback and no profile says otherwise."""
    described = (ROOT / "docs/deploy.md").read_text()
    written = dict(re.findall(r"^echo '(.*)' > (\S+)", described, re.MULTILINE))
    profiles = {path: yaml.safe_load(text) for text, path in written.items()}
    mounted = yaml.safe_load((ROOT / "deploy/profile.yaml").read_text())
    found = list(deployed())
    assert len(found) == 4
    for name, command in found:
        if "--profile" in command:
            path = command[command.index("--profile") + 1]
            profile = mounted if name.startswith("compose") else profiles[path]
            assert requires_keys(profile), name
        else:
            host = command[command.index("--host") + 1]
            assert AccessSettings().requires(is_loopback=is_loopback_host(host)), name


def test_every_profile_in_the_documents_for_operators_requires_keys() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/cluster.md").read_text(), re.MULTILINE | re.DOTALL)
    profiles = [
        yaml.safe_load(each) for each in blocks if re.search(r"^(master|semantics|webhooks):", each, re.MULTILINE)
    ]
    assert profiles
    assert all(map(requires_keys, profiles))


# A real browser --------------------------------------------------------------------------------

ATTACK = """<!doctype html><title>attack</title><body><script>
const gateway = new URLSearchParams(location.search).get("gateway"), done = {};
window.done = done;
const settle = (name) => (value) => { done[name] = value; };
fetch(gateway + "/v1/services").then((a) => a.text()).then(settle("fetch"), () => settle("fetch")("refused"));
fetch(gateway + "/v1/streams/stolen", {method: "PUT", body: "schema: {a: string}"})
  .then(() => settle("put")("taken"), () => settle("put")("refused"));
fetch(gateway + "/v1/services/gps/subscriptions", {method: "POST", mode: "no-cors", body: "{}"})
  .then((a) => settle("no_cors")(a.type), () => settle("no_cors")("refused"));
const image = new Image();
image.onload = () => settle("image")("shown"); image.onerror = () => settle("image")("refused");
image.src = gateway + "/console/icon.svg";
const script = document.createElement("script"); script.onload = () => settle("script")("run");
script.onerror = () => settle("script")("refused"); script.src = gateway + "/console/dom.js";
document.body.append(script);
const source = new EventSource(gateway + "/v1/services/gps/events");
source.onopen = () => settle("events")("open"); source.onerror = () => settle("events")("refused");
const socket = new WebSocket(gateway.replace("http", "ws") + "/v1/events");
socket.onopen = () => settle("socket")("open"); socket.onerror = () => settle("socket")("refused");
const frame = document.createElement("iframe"); frame.name = "target"; document.body.append(frame);
const form = document.createElement("form"); form.method = "POST"; form.enctype = "text/plain"; form.target = "target";
form.action = gateway + "/v1/services/gps/subscriptions"; const field = document.createElement("input");
field.name = '{"description":"'; field.value = '"}'; form.append(field); document.body.append(form);
frame.onload = () => { frame.onload = null; settle("form")("sent"); }; form.submit();
</script>"""


class _Attack(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = ATTACK.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def site() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Attack) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.browser
def test_page_of_another_site_does_nothing_in_a_real_browser(tmp_path: Path) -> None:
    """From another local port (same-site), from a foreign name (cross-site), and with the gateway under that name."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium: 'chromium' is not on PATH; scripts/need-programs installs it")
    from playwright.sync_api import sync_playwright

    with World(tmp_path).running() as world, site() as port, sync_playwright() as playwright:
        world.append(3)
        # The rebinding itself: a name of the attacker's that resolves to this machine.
        args = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP *.example 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=program, args=args)
        try:
            for page_host, target in (
                ("127.0.0.1", world.url),
                ("evil.example", world.url),
                ("evil.example", f"http://evil.example:{world.port}"),
            ):
                page = browser.new_page()
                page.goto(f"http://{page_host}:{port}/?gateway={target}")
                page.wait_for_function("Object.keys(window.done).length === 8", timeout=60_000)
                found = page.evaluate("window.done")
                assert "gps" not in json.dumps(found)
                assert found["put"] == "refused"
                assert {found[each] for each in ("image", "script", "events", "socket")} == {"refused"}, found
                page.close()
        finally:
            browser.close()
        with world.client() as http:
            assert http.get("/v1/services/gps/subscriptions").json() == {"subscriptions": []}
            assert http.get("/v1/streams/stolen").status_code == 404


@pytest.mark.browser
def test_console_works_without_a_key_in_a_real_browser(tmp_path: Path) -> None:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium: 'chromium' is not on PATH; scripts/need-programs installs it")
    from playwright.sync_api import sync_playwright

    with World(tmp_path).running() as world, site() as port, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            for address in (world.url, f"http://localhost:{world.port}"):
                page = browser.new_page()
                page.goto(f"http://127.0.0.1:{port}/")
                page.evaluate(f"location.href = '{address}/'")  # as a link on another site would
                page.wait_for_selector("text=gps", timeout=60_000)
                page.close()
        finally:
            browser.close()
