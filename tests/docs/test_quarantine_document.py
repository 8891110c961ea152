"""`docs/spec/quarantine.md` agrees with the gateway."""

from __future__ import annotations

import json
from pathlib import Path

from tests.docs.test_documents import ROOT
from tests.docs.test_subscriptions import shows
from tests.gateway.running import World

TEXT = (ROOT / "docs" / "spec" / "quarantine.md").read_text(encoding="utf-8")


def test_requests_get_the_shown_answers(tmp_path: Path) -> None:
    lines = [line for line in TEXT.splitlines() if line[:2] in ("→ ", "← ")]
    assert len(lines) == 8
    world, id_ = World(tmp_path), ""
    event = {"vid": "B1", "speed": -1.0, "time": "2026-01-01T00:00:00.000000Z"}
    world.log.create("gps_taxi")
    world.log.append("gps_taxi", "0", [json.dumps(event).encode()])
    world.log.create("gps.quarantine", ["gps_taxi.0"])
    ours = {"_id": "gps_taxi:0:0", "_src": "gps_taxi/0:0", "_time": event["time"]}
    refused = {**ours, **event, "_reason": "speed: -1.0 violates speed >= 0"}
    world.log.append("gps.quarantine", "gps_taxi.0", [json.dumps(refused).encode()])
    with world.running(), world.client() as http:
        world.await_ready(http, "gps", "fast")
        for asked, shown in zip(lines[::2], lines[1::2], strict=True):
            method, path, *body = asked[2:].replace("{id}", id_).split(" ", 2)
            answer = http.request(method, path, content=body[0].encode() if body else None)
            status, expected = shown[2:].split(" ", 1)
            assert answer.status_code == int(status), (asked, answer.text)
            said = answer.json()
            if method == "GET":
                id_ = said["quarantined"][0]["id"]
            assert shows(json.loads(expected), said), (asked, said)
