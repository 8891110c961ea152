"""`docs/spec/ingest.md` agrees with the gateway."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.docs.test_documents import ROOT
from tests.docs.test_subscriptions import shows
from tests.gateway.running import World
from tidegate.ingress.http.formats import CONTENT_TYPES

TEXT = (ROOT / "docs" / "spec" / "ingest.md").read_text(encoding="utf-8")


def test_table_of_content_types_is_complete() -> None:
    table = TEXT.split("| content type |")[1].split("\n\n")[0]
    assert re.findall(r"`(application/[^`]+)`", table) == [*CONTENT_TYPES]


def test_requests_get_the_shown_answers(tmp_path: Path) -> None:
    lines = [line for line in TEXT.splitlines() if line[:2] in ("→ ", "← ")]
    assert len(lines) == 6
    world = World(tmp_path)
    with world.running(), world.client() as http:
        world.await_ready(http, "gps", "fast")
        for asked, shown in zip(lines[::2], lines[1::2], strict=True):
            method, path, body = asked[2:].split(" ", 2)
            headers = {"content-type": "application/json"}
            answer = http.request(method, path, content=body.encode(), headers=headers)
            status, expected = shown[2:].split(" ", 1)
            assert answer.status_code == int(status), (asked, answer.text)
            assert shows(json.loads(expected), answer.json()), (asked, answer.json())
