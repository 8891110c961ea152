"""A gateway in a child process of `tidegate up` and `tidegate demo`."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.lock import FolderLock
from tidegate.cli.output.logging import logger
from tidegate.cli.processes.gateway_server import server_tls
from tidegate.cli.processes.listening import allowed_origins, find_port, gateway_url, require_keys
from tidegate.errors import ClientError
from tidegate.timing import NO_JITTER, Backoff

STOP_TIMEOUT_S = 15.0
"""How long a gateway may take to drain; then it is killed."""
BACKOFF = Backoff(first_s=0.5, max_s=10.0, jitter=NO_JITTER)
"""Pauses before a gateway that has died is restarted. One that lived for longer than the last starts with the first."""


class GatewayProcess:
    """A gateway in a child process, restarted by `watch` when it dies. Not thread-safe: one thread uses it."""

    def __init__(
        self,
        home: Home,
        profile: str,
        host: str,
        port: int,
        announce: Callable[[str | None, Path | None], None],
        *,
        origins: Sequence[str] = (),
        private_webhooks: bool = False,
        broker: str | None = None,
        semantics: str | None = None,
    ) -> None:
        """`announce` is called with a URL and the file of the gateway's certificate.

        The URL is None when the process starts, and the gateway's own when it answers requests.
        """
        self._announce, self._is_announced = announce, False
        self._tls = home.profile.tls.server
        self._command = [sys.executable, "-m", "tidegate", "gateway", "--child"]
        self._command += ["--data", str(home.folder), "--profile", profile, "--host", host, "--port", str(port)]
        for origin in origins:
            self._command += ["--origin", origin]
        self._command += ["--allow-private-webhooks"] * private_webhooks
        self._command += [] if broker is None else ["--broker", broker]
        self._command += [] if semantics is None else ["--semantics", semantics]
        for option, file in self._tls_options():
            self._command += [option, str(file)]
        self.url = gateway_url(host, port, is_secure=self._tls is not None)
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._restart_at = 0.0
        self._started_at = 0.0

    @property
    def certificate(self) -> Path | None:
        """The file with the gateway's certificate; None if it listens without TLS."""
        return None if self._tls is None else self._tls.cert

    def _tls_options(self) -> Iterator[tuple[str, Path]]:
        """TLS files as options of the child: those of our command line are not in the profile that it reads."""
        if self._tls is not None:
            yield from (("--tls-cert", self._tls.cert), ("--tls-key", self._tls.key))
            if self._tls.client_ca is not None:
                yield "--tls-client-ca", self._tls.client_ca

    def start(self) -> None:
        """Start the process; returns before the gateway listens."""
        self._announce(None, self.certificate)
        self._is_announced = False
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)

    def watch(self) -> None:
        """Restart the gateway if it has died, with exponential backoff, and announce it once it answers.

        Called about once a second; waits at most a second for an answer.
        """
        if self._process is not None and self._process.poll() is not None:
            lived_s = time.monotonic() - self._started_at
            self._failures = 1 if lived_s > BACKOFF.max_s else self._failures + 1
            pause_s = BACKOFF.delay_s(self._failures)
            logger("tidegate.gateway").warning(
                "the gateway has ended", code=self._process.returncode, again_in_s=pause_s
            )
            self._restart_at, self._process = time.monotonic() + pause_s, None
        if self._process is None and time.monotonic() >= self._restart_at:
            self.start()
        if not self._is_announced and self.answers("/livez"):
            self._announce(self.url, self.certificate)
            self._is_announced = True

    def answers(self, path: str) -> bool:
        """Return True if a GET of a path, such as `/livez` or `/readyz`, returns status 200 within a second."""
        from tidegate.client.tls import pinned_context

        try:
            context = None if self.certificate is None else pinned_context(self.certificate)
            with urllib.request.urlopen(f"{self.url}{path}", timeout=1, context=context) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError, ClientError):
            return False

    def stop(self) -> None:
        """Close the child's standard input, which stops it, and wait until it has drained; then kill it."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def running_gateway(
    home: Home,
    lock: FolderLock,
    profile: str,
    host: str,
    port: int,
    *,
    origins: list[str] | None = None,
    private_webhooks: bool = False,
    broker: str | None = None,
    semantics: str | None = None,
) -> Iterator[GatewayProcess]:
    """Run a gateway while the block runs. The folder's lock file says where other processes can reach it.

    Raises an `EnvironmentProblem` or `ClientError` before it starts anything, if a setting can't be used: an address
    that needs keys, a port in use, a TLS file, or a semantic space.
    """
    require_keys(home, host)
    server_tls(home)
    home.semantics(semantics)
    process = GatewayProcess(
        home,
        profile,
        host,
        find_port(host, port),
        lock.announce,
        origins=allowed_origins(home, host, origins),
        private_webhooks=private_webhooks,
        broker=broker,
        semantics=semantics,
    )
    process.start()
    try:
        yield process
    finally:
        process.stop()
