"""`docs/spec/subscriptions.md` agrees with the gateway."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.docs.test_documents import ROOT
from tests.gateway.receiver import Receiver
from tests.gateway.running import World
from tidegate.delivery.push.context import PushSettings
from tidegate.gateway.transports.webhook import REFUSALS, WebhookSettings
from tidegate.model import units
from tidegate.subscriptions import rules, webhook

TEXT = (ROOT / "docs" / "spec" / "subscriptions.md").read_text(encoding="utf-8")
ADDRESS = "https://example.com/in"


def shows(shown: Any, said: Any) -> bool:
    """True if an answer is the one that a document shows; `…` stands for any value."""
    if isinstance(shown, dict) and isinstance(said, dict):
        return shown.keys() == said.keys() and all(shows(shown[name], said[name]) for name in shown)
    if isinstance(shown, list) and isinstance(said, list) and len(shown) == len(said):
        return all(map(shows, shown, said))
    return bool(shown == "…" or shown == said)


def test_requests_get_the_shown_answers(tmp_path: Path) -> None:
    lines = [line for line in TEXT.splitlines() if line[:2] in ("→ ", "← ")]
    assert len(lines) == 26
    known = {"{id}": "", "{cursor}": ""}
    with World(tmp_path).running() as world, world.client() as http, Receiver().running() as receiver:
        for asked, shown in zip(lines[::2], lines[1::2], strict=True):
            for name, value in {**known, ADDRESS: receiver.url}.items():
                asked = asked.replace(name, value)
            method, path, *body = asked[2:].split(" ", 2)
            answer = http.request(method, path, content=body[0].encode() if body else None)
            status, *expected = shown[2:].split(" ", 1)
            assert answer.status_code == int(status), (asked, answer.text)
            if not expected:
                continue
            said = answer.json()
            assert shows(json.loads(expected[0].replace(ADDRESS, receiver.url)), said), (asked, said)
            if answer.status_code == 201:
                known["{id}"] = said["id"]
                if said["deliver"] == "pull":
                    world.append(100)
            if said.get("events"):
                known["{cursor}"] = said["cursor"]


def test_fields_and_limits_agree_with_the_code() -> None:
    table = TEXT.split("| field |")[1].split("\n\n")[0]
    fields = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert fields == {*rules._READERS, "from", "cursor"}
    assert f"2 to {webhook.MAX_BATCH:,}" in TEXT
    assert f"at most {rules.MAX_TEXT:,} characters" in TEXT
    assert f"(at most {webhook.MAX_SECRETS}," in TEXT
    assert units.duration_text(rules.MAX_INTERVAL_S) == "1d"
    push, webhooks = PushSettings(), WebhookSettings()
    assert f"| {', '.join(map(str, sorted(REFUSALS)))} |" in TEXT
    assert f"none within {webhooks.timeout_s:g} s | tried again after {push.first_retry_s:g} s" in TEXT
    assert f"after {push.max_attempts} failures in a row" in TEXT
    assert f"leases last {push.lease_s:g} s" in TEXT
    assert push.max_retry_s == 3_600.0
    assert f"`WebHook-Request-Origin: {webhooks.origin}`" in TEXT
