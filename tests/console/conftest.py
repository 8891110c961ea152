from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.city import City

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
"""What a reviewer can look at; git does not see it."""
PATIENCE_MS = 60_000
"""Long, as a browser shares the machine with JVMs: only what never comes is waited for so."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, once for all tests of a file."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium: 'chromium' is not on PATH; scripts/need-programs installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    """A city that was alive for a moment: events, something refused, all services running."""
    city = City(tmp_path_factory.mktemp("city"))
    city.drive(600)
    city.refuse(4)
    for _ in range(3):
        city.tell_all()
    with city.running():
        yield city


@pytest.fixture(scope="module")
def shared(city: City) -> Iterator[httpx.Client]:
    """Who asks the city without a browser."""
    with city.client() as client:
        yield client


class Seen:
    """The errors and the forbidden requests of a page."""

    def __init__(self, page: Any) -> None:
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)

    def _said(self, message: Any) -> None:
        # A probe for what is not installed, or a call that is to be refused, is told by the browser itself.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.errors.append(message.text)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must not complain."""
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    made = context.new_page()
    seen = Seen(made)
    yield made
    context.close()
    assert seen.errors == []
