"""A real gateway's logs, after a run in which keys, tokens and webhooks' secrets were shown to it in every way."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import httpx
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.gateway.issuer import TestIssuer
from tests.gateway.running import CITY
from tests.pipelines.running import until
from tests.ports import free_port
from tidegate.logs import SegmentLog
from tidegate.registry import SqliteRegistry
from tidegate.services import loads


def test_no_secret_is_in_the_logs(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.sqlite")
    registry.apply(loads(CITY))
    SegmentLog(tmp_path / "log").create("gps", ["gps_taxi.0"])
    key, good = registry.create_key("mine", "admin")
    old, revoked = registry.create_key("old", "consumer")
    registry.revoke_key(old.id)
    with TestIssuer().running() as issuer:
        tokens = [issuer.token(), issuer.token(exp=1), issuer.token(aud="x"), issuer.token(roles=["none"])]
        unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtYWxsb3J5In0."
        profile = tmp_path / "p.yaml"
        profile.write_text(f"access: {{oidc: {{issuer: '{issuer.url}', audience: tidegate, pause: 1ms, fresh: 1ms}}}}")
        shown = [good, revoked, f"tg_aaaaaaaa_{'b' * 40}", *tokens, unsigned, "hunter2.hunter2"]
        logs = tmp_path / "logs"
        port = free_port()
        command = [sys.executable, "-m", "tidegate", "gateway", "--data", str(tmp_path), "--profile", str(profile)]
        with (
            logs.open("wb") as file,
            subprocess.Popen([*command, "--port", str(port)], stdout=file, stderr=subprocess.STDOUT) as gateway,
        ):
            try:
                base = f"http://127.0.0.1:{port}"
                until(lambda: _answers(base), "the gateway")
                secret = _use(base, good, shown)
                issuer.is_down = True
                _use(base, good, shown)
                registry.revoke_key(key.id)
            finally:
                gateway.terminate()
                gateway.wait(30)
    registry.close()
    said = logs.read_text()
    assert "can't get the issuer's keys" in said  # it does log, and what went wrong
    parts = {part for each in [*shown, secret] for part in (each, *each.split(".")) if len(part) > 6}
    assert [part for part in parts if part in said] == []


def _use(base: str, good: str, shown: list[str]) -> str:
    """Show secrets in all ways there are; give a webhook's."""
    with httpx.Client(base_url=base, timeout=30) as http:
        for each in shown:
            for path in ("/v1/services", "/v1/services/gps/events", "/v1/nothing", "/v1/subscriptions/x"):
                http.get(path, headers={"authorization": f"Bearer {each}"})
                http.get(path, headers={"x-api-key": each})
                http.get(path, params={"access_token": each})
                http.post(path, params={"access_token": each}, content=b"{")
            http.get("/v1/services", headers={"authorization": f"Basic {each}"})
            url = f"ws{base[4:]}/v1/services/gps/events?access_token={each}"
            with contextlib.suppress(InvalidStatus), connect(url) as client:
                client.send("nonsense")
                client.recv(20)
            with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2]))) as raw:
                raw.sendall(f"GET /v1/services?access_token={each} HTTP/9.9\r\nbad header {each}\r\n\r\n".encode())
                raw.recv(100)
        deliver = {"webhook": {"url": "https://example.org/in", "secret": "whsec_" + "QUFB" * 10, "handshake": False}}
        http.post("/v1/services/gps/subscriptions", json={"deliver": deliver}, params={"access_token": good})
        return "QUFB" * 10


def _answers(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/livez", timeout=10):
            return True
    except OSError:
        return False
