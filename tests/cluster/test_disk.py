"""The disk of the log is full or read-only: ingest returns 503, delivery continues, and everything recovers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.gateway.running import World
from tests.polling import until
from tests.ports import free_port

pytestmark = pytest.mark.processes

SIZE = "8m"


class Disk:
    """A file system of its own in memory, which tests can fill and make read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(b"x" * size)
                except OSError:
                    size //= 2

    def free(self) -> None:
        (self.folder / "filler").unlink()

    def make_read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True, capture_output=True)

    def make_writable(self) -> None:
        subprocess.run(["mount", "-o", "remount,rw", str(self.folder)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a file system of its own can't be mounted here")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


@contextmanager
def gateway(data: Path, output: Path) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    port = free_port()
    command = [sys.executable, "-m", "tidegate", "gateway", "--data", str(data), "--port", str(port)]
    with output.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)
    try:
        until(lambda: "listening: " in output.read_text() or process.poll() is not None, "the gateway to listen")
        assert process.poll() is None, output.read_text()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield process, client
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def publish(client: httpx.Client, n: int) -> httpx.Response:
    event = {"_id": f"e{n}", "vid": "a" * 4_000, "speed": float(n), "time": "2026-01-01T00:00:00Z"}
    return client.post(
        "/v1/streams/gps_taxi/events", content=json.dumps(event), headers={"content-type": "application/json"}
    )


FAULTS: dict[str, tuple[Callable[[Disk], None], Callable[[Disk], None], str]] = {
    "full": (Disk.fill, Disk.free, "No space left on device"),
    "read-only": (Disk.make_read_only, Disk.make_writable, "Read-only file system"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_ingest_returns_503_while_the_disk_fails_and_delivery_continues(disk: Disk, tmp_path: Path, fault: str) -> None:
    begin, end, reason = FAULTS[fault]
    data = tmp_path / "data"
    world = World(data)
    world.append(3)
    world.log.close()
    shutil.move(data / "log", disk.folder / "log")
    (data / "log").symlink_to(disk.folder / "log")
    with gateway(data, tmp_path / "gateway.txt") as (process, client):
        params = {"from": "beginning"}
        accept = {"accept": "application/json"}
        if fault == "full":  # a file system can't be made read-only while a file is open for writing
            assert publish(client, 1).status_code == 200
        begin(disk)
        refused = publish(client, 2)
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True), refused.text
        assert reason in refused.json()["detail"]
        assert len(client.get("/v1/services/gps/events", params=params, headers=accept).json()["events"]) == 3
        assert client.get("/livez").status_code == 200
        assert process.poll() is None
        end(disk)
        answers = [refused]

        def is_accepted() -> bool:
            answers.append(publish(client, 2))
            return answers[-1].status_code == 200

        until(is_accepted, "ingest to recover", 60)
        assert answers[-1].json()["accepted"] == 1
        again = publish(client, 2)
        assert (again.status_code, again.json()["duplicates"]) == (200, 1)
