"""`make cluster-demo`: a cluster of real processes that delivers events, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import LENGTH
from tests.docs.test_documents import ROOT
from tests.polling import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.skipif(LENGTH != "soak", reason="starts a whole cluster: in the soak only"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of temporary files of the demo: short, as the path of a socket has at most 107 characters."""
    folder = Path(f"/tmp/tgd-{os.getpid()}")
    folder.mkdir()
    yield folder
    folder.rmdir()  # fails if something is left


def start(folder: Path, output: Path, *arguments: str) -> subprocess.Popen[bytes]:
    folder.chmod(0o755)  # PostgreSQL runs as a user of its own
    command = [sys.executable, "-m", "examples.cluster_demo", *arguments]
    with output.open("wb") as written:
        return subprocess.Popen(
            command, cwd=ROOT, stdout=written, stderr=written, env={**os.environ, "TMPDIR": str(folder)}
        )


def processes_of(folder: Path) -> list[str]:
    """The command lines that name the folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # the process has ended
            continue
        found += [line] if f"{folder}/" in line else []
    return found


def test_demo_delivers_at_both_gateways_and_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "demo.txt"
    process = start(folder, output, "--for", "10s")
    assert process.wait(600) in (0, 1), output.read_text()
    text = output.read_text()
    assert text.endswith("all processes have ended\n"), text
    rows = re.findall(r"^([01])\s+(SSE|WebSocket|polling|webhook)\s+(?:gps|speeding)\s+([\d,]+)", text, re.MULTILINE)
    assert len(rows) == 12, text
    assert {gateway for gateway, _, events in rows if events != "0"} == {"0", "1"}, text
    assert processes_of(folder) == []


def test_signal_during_the_start_ends_all_processes(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "demo.txt"
    process = start(folder, output)
    until(lambda: "waiting for Kafka" in output.read_text() or process.poll() is not None, "PostgreSQL to run")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130, output.read_text()
    assert processes_of(folder) == []
