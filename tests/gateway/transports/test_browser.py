"""A browser's own EventSource, and curl: those who read events without a library of ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.client.proxy import proxy
from tests.gateway.running import World
from tests.pipelines.running import until

PAGE = b"""<!doctype html><title>events</title><script>
window.got = []; window.opened = 0; window.failed = 0;
const source = new EventSource(new URLSearchParams(location.search).get("events"));
source.onopen = () => window.opened++;
source.onerror = () => window.failed++;
source.onmessage = (event) => window.got.push(JSON.parse(event.data).id);
</script>"""
PATIENCE_MS = 60_000


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """A consumer's own page, from an origin of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def chromium() -> str:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium: 'chromium' is not on PATH; scripts/need-programs installs it")
    return program


@contextmanager
def opened(chromium: str, url: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_page()
            page.goto(url)
            yield page
        finally:
            browser.close()


def ids(*numbers: int) -> list[str]:
    return [f"gps_taxi:0:{n}" for n in numbers]


@pytest.mark.browser
def test_event_source_reconnects_without_loss(tmp_path: Path, site: str, chromium: str) -> None:
    world = World(tmp_path)
    world.origins = (site,)
    with world.running(), proxy(world.port) as between:
        between.cuts = [2_500, 4_000]  # each in the middle of an event
        events = f"{between.url}/v1/services/gps/events"
        with opened(chromium, f"{site}/?events={events}") as page:
            page.wait_for_function("window.opened === 1", timeout=PATIENCE_MS)
            until(lambda: world.counts().get("gps", {}).get("live", 0) == 1, "the page to listen")
            for n in range(1, 51):
                world.append(1)
                if n % 10 == 0:  # live, not all at once
                    page.wait_for_function(f"window.got.length >= {n}", timeout=PATIENCE_MS)
            assert page.evaluate("window.got") == ids(*range(50))
            assert page.evaluate("[window.opened, window.failed]") == [3, 2], "it was not cut off"
    assert between.cuts == []


@pytest.mark.browser
def test_page_of_another_origin_is_refused(tmp_path: Path, site: str, chromium: str) -> None:
    with World(tmp_path).running() as world:
        world.append(3)
        events = f"{world.url}/v1/services/gps/events%3Ffrom=beginning"
        with opened(chromium, f"{site}/?events={events}") as page:
            page.wait_for_function("window.failed === 1", timeout=PATIENCE_MS)
            assert page.evaluate("[window.opened, window.got]") == [0, []]
            assert page.evaluate("source.readyState") == 2, "it would try for ever"


@pytest.mark.processes
def test_curl_reads_events(world: World) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl on the path")
    url = f"{world.url}/v1/services/gps/events?filter=speed%20%3C%203&format=plain"
    command = [curl, "-sN", "-H", "Accept: text/event-stream", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "retry: 1000\n"
        until(lambda: world.counts().get("gps", {}).get("live", 0) == 1, "curl to listen")
        try:
            found: list[int] = []
            for n in range(3):
                world.append(1)  # each is there before the next is sent
                while not (line := running.stdout.readline()).startswith("data: "):
                    assert line, "curl has ended"
                found.append(json.loads(line.removeprefix("data: "))["speed"])
                assert found == list(range(n + 1))
        finally:
            running.kill()
