"""The console's files: what they may do, and what they are held to."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.gateway.running import World
from tidegate.gateway.routes.console import FOLDER

MODULES = sorted(FOLDER.rglob("*.js"))
TEXTS = "texts.js"


def test_page_and_modules_are_served_with_a_strict_policy(shared: httpx.Client) -> None:
    page = shared.get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for path in re.findall(r'(?:href|src)="(console/[^"]+)"', page.text):
        answer = shared.get(f"/{path}")
        policy = answer.headers["content-security-policy"]
        assert answer.status_code == 200
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy, "nothing comes from elsewhere"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_unchanged_files_get_304(shared: httpx.Client) -> None:
    tag = shared.get("/console/app.js").headers["etag"]
    again = shared.get("/console/app.js", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert shared.head("/").status_code == 200


@pytest.mark.parametrize("path", ["nothing.js", "../app.py", "%2e%2e/app.py", "pages", "pages/../../app.py"])
def test_nothing_else_is_served(shared: httpx.Client, path: str) -> None:
    answer = shared.get(f"/console/{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_console_without_a_key_reveals_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    world = World(tmp_path_factory.mktemp("keys"))
    world.needs_keys = True
    with world.running(), world.client() as http:
        assert http.get("/").status_code == 200
        assert http.get("/v1/me").status_code == 401
        assert http.get("/v1/overview").status_code == 401


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_no_module_parses_markup_or_code(module: object) -> None:
    text = (FOLDER / str(module)).read_text()
    found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser", text)
    assert found == []
    assert not re.search(r"https?://(?!www\.w3\.org|example\.com)", text), "nothing comes from elsewhere"


@pytest.mark.parametrize("module", [each for each in MODULES if each.name != TEXTS], ids=lambda path: path.name)
def test_every_text_is_in_one_place(module: object) -> None:
    text = (FOLDER / str(module)).read_text()
    said = re.findall(r"""(?:text|title|name|placeholder|"aria-label"): ["']([^"']*[A-Za-z]{3}[^"']*)""", text)
    said += re.findall(
        r"""\b(?:badge|button|card|field|input|say|toast)\((?:\w+, )?["']([^"']*[A-Za-z]{3}[^"']*)""", text
    )
    assert said == []


def test_every_named_text_exists() -> None:
    texts = (FOLDER / TEXTS).read_text()
    for module in MODULES:
        for group, name in re.findall(r"\bt\.(\w+)(?:\.(\w+))?", module.read_text()):
            assert re.search(rf"^  {group}:", texts, re.MULTILINE), f"t.{group} in {module.name}"
            is_list = name in ("find", "map")
            assert not name or is_list or re.search(rf"\b{name}\b", texts), f"t.{group}.{name} in {module.name}"
