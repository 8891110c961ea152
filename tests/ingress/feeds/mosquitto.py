"""A real MQTT broker on a free port of this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.ingress.kit import until
from tests.ports import free_port

PROGRAM = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin")
HOW = "needs mosquitto: scripts/need-programs, or brew install mosquitto"


class Mosquitto:
    """Keeps its sessions on disk; may be ended and started again on the same port."""

    def __init__(self, folder: Path, access: str = "allow_anonymous true") -> None:
        """`access` are lines of its configuration that say who gets in, and how."""
        self.port = free_port()
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\n{access}\nuser {getpass.getuser()}\n"
            f"persistence true\npersistence_location {folder}/\nmax_queued_messages 0\nlog_dest none\n"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        assert PROGRAM is not None
        self._process = subprocess.Popen([PROGRAM, "-c", str(self._config)], stderr=subprocess.DEVNULL)
        until(self._answers)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
