"""Ports for servers that a test starts, or starts again: none of those that the system gives to who asks for any."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from itertools import count

_FIRST, _EACH, _WORKERS = 20_000, 1_500, 8
"""Below what Linux and macOS hand out themselves, from 32,768 on, to each worker its own."""
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
_numbers = count(random.SystemRandom().randrange(_EACH))


def free_port() -> int:
    """Return a free port of loopback. No other test gets it, even while its server is down."""
    for _ in range(_EACH):
        port = _FIRST + _worker * _EACH + next(_numbers) % _EACH
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("all ports are taken")
