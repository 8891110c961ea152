"""The console's page of API keys, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.city import City
from tests.pipelines.running import until

pytestmark = pytest.mark.browser


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[City, str]]:
    """A city that requires keys, and the secret of an admin's."""
    city = City(tmp_path)
    city.needs_keys = True
    city.tell_all()
    _, secret = city.registry.create_key("root", "admin")
    with city.running():
        yield city, secret


def sign_in(page: Any, city: City, secret: str, path: str = "") -> None:
    page.goto(f"{city.url}/#/{path}")
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def opens(city: City, secret: str) -> bool:
    with city.client() as http:
        return http.get("/v1/me", headers={"authorization": f"Bearer {secret}"}).status_code == 200


def test_key_is_created_rotated_and_revoked_in_the_console(page: Any, locked: tuple[City, str]) -> None:
    city, secret = locked
    sign_in(page, city, secret, "keys")
    page.locator("[data-field=name]").fill("<b>fleet</b>")
    page.locator("[data-field=role]").select_option("provider")
    page.locator("[data-field=expires]").fill("30d")
    page.get_by_role("button", name="Create", exact=True).click()
    first = page.locator("code[data-secret]").text_content()
    assert first.startswith("tg_")
    assert opens(city, first)
    key = next(each for each in city.registry.keys().values() if each.name == "<b>fleet</b>")
    assert (key.role, key.expires_at is not None) == ("provider", True)
    page.get_by_role("button", name="Done").click()
    assert first not in page.content(), "the secret is shown once"

    row = page.locator(f"tr[data-key={key.id}]")
    row.get_by_text("<b>fleet</b>").wait_for()
    row.get_by_text("ago from 127.0.0.1").wait_for()
    page.get_by_label("The old secret stays valid for").select_option("0s")
    row.get_by_role("button", name="Rotate").click()
    page.wait_for_function(
        "(old) => ![null, undefined, old].includes(document.querySelector('code[data-secret]')?.textContent)", arg=first
    )
    second = page.locator("code[data-secret]").text_content()
    assert (opens(city, first), opens(city, second)) == (False, True)

    row.get_by_role("button", name="Revoke").click()
    assert opens(city, second), "one click does not revoke"
    row.get_by_role("button", name="Really?").click()
    row.get_by_text("revoked", exact=True).wait_for()
    assert not opens(city, second)

    page.get_by_text("key.revoke").wait_for()
    for each in (first, second, secret):
        assert each not in page.locator("table").last.text_content()


def test_key_that_is_in_use_is_not_revoked_and_a_wrong_one_is_explained(page: Any, locked: tuple[City, str]) -> None:
    city, secret = locked
    sign_in(page, city, secret, "keys")
    (own,) = city.registry.keys()
    row = page.locator(f"tr[data-key={own}]")
    row.get_by_role("button", name="Revoke").click()
    row.get_by_role("button", name="Really?").click()
    page.get_by_text("revoke it with another admin's key").wait_for()
    page.locator("[data-field=name]").fill("fleet")
    page.locator("[data-field=expires]").fill("soon")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("expires: expected a length of time such as 90d").wait_for()
    assert list(city.registry.keys()) == [own]


def test_provider_sees_no_page_of_keys(page: Any, locked: tuple[City, str]) -> None:
    city, _ = locked
    sign_in(page, city, city.registry.create_key("fleet", "provider")[1], "keys")
    page.get_by_text("There is no such page, or you may not see it.").wait_for()
    assert page.get_by_role("link", name="Keys").count() == 0
    until(lambda: page.get_by_role("link", name="Services").count() == 1, "the other pages")
