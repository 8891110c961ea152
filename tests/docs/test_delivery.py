"""`docs/spec/delivery.md` agrees with the gateway."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.docs.test_documents import ROOT
from tests.gateway.running import World, record
from tidegate.delivery.encoding import Encoding
from tidegate.gateway import messages
from tidegate.gateway.protocol import GOING_AWAY
from tidegate.gateway.routes import sockets
from tidegate.gateway.server import LARGEST_MESSAGE_BYTES
from tidegate.gateway.sweep import VOID
from tidegate.gateway.websocket import MOST_SUBSCRIPTIONS
from tidegate.logs import Cursor

TEXT = (ROOT / "docs" / "spec" / "delivery.md").read_text(encoding="utf-8")


def shows(shown: Any, said: Any) -> bool:
    """True if an answer is the one that a document shows; `…` stands for any value."""
    if isinstance(shown, dict) and isinstance(said, dict):
        return shown.keys() == said.keys() and all(shows(shown[name], said[name]) for name in shown)
    if isinstance(shown, list) and isinstance(said, list):
        return sorted(map(str, shown)) == sorted(map(str, said))
    return bool(shown == "…" or shown == said)


def test_websocket_conversation_agrees_with_the_gateway(tmp_path: Path) -> None:
    lines = [(line[0], json.loads(line[2:])) for line in TEXT.splitlines() if line[:2] in ("→ ", "← ")]
    assert len(lines) > 15
    assert {said["op"] for way, said in lines if way == "→"} == set(messages.OPS)
    with World(tmp_path).running() as world, connect(f"ws://127.0.0.1:{world.port}/v1/events") as socket:
        for way, shown in lines:
            if way == "→":
                socket.send(json.dumps(shown))
                continue
            if shown["op"] == "event" and not world.sent:
                world.append(100)
            said = json.loads(socket.recv(20))
            assert shows(shown, said), (shown, said)


def test_events_and_cursors_agree_with_the_encoders() -> None:
    cloud, plain, page = re.findall(r"```json\n(.*?)\n```", TEXT, re.DOTALL)
    written = record(98)
    assert Encoding().encode("gps", written, json.loads(written)).decode() == cloud
    assert Encoding("plain").encode("gps", written, json.loads(written)).decode() == plain
    Cursor.from_text(json.loads(page)["cursor"])


def test_limits_and_close_codes_agree_with_the_code() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d{4}) \|", TEXT, re.MULTILINE)}
    assert codes >= {GOING_AWAY, sockets.BAD_REQUEST, *sockets.CLOSES.values(), VOID, sockets.TRY_AGAIN_LATER}
    assert f"| subscriptions on a socket | {MOST_SUBSCRIPTIONS:,};" in TEXT
    assert f"| sockets of a gateway | {sockets.MOST_SOCKETS:,} |" in TEXT
    assert LARGEST_MESSAGE_BYTES == 1024 * 1024
