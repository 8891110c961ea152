"""`tidegate gateway`: serve the API over a folder's log and registry. `tidegate up` starts one beside its services."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import options
from tidegate.cli.home import Home
from tidegate.cli.logging import log_to_stderr, logger
from tidegate.cli.profile import EMBEDDED, load_profile
from tidegate.cli.tls import TlsCert, TlsClientCa, TlsKey, with_options
from tidegate.errors import ClientError, EnvironmentProblem
from tidegate.timing import NO_JITTER, Backoff

if TYPE_CHECKING:
    from tidegate.gateway.certificates import Certificates
    from tidegate.gateway.tls import ServerTls

PORT = 8080
HOST = "127.0.0.1"
DRAIN_S = 15.0
"""How long a gateway may take to end; then it is killed."""
BACKOFF = Backoff(first_s=0.5, max_s=10.0, jitter=NO_JITTER)
"""Delays before a gateway process that died is started again."""

Host = Annotated[str, typer.Option("--host", help="Where the gateway listens; beyond loopback keys are asked for.")]
PrivateWebhooks = Annotated[
    bool, typer.Option("--allow-private-webhooks", help="Let webhooks go to addresses that are not public, too.")
]
Port = Annotated[int, typer.Option("--port", help="The gateway's port; 0: any that is free.", min=0, max=65535)]
Origin = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        help="Web pages of this origin may use it (CORS); may be repeated. *: all, where there are keys.",
    ),
]

Broker = Annotated[
    str | None, typer.Option("--broker", help="Its name among brokers that are linked; the machine's, if not given.")
]


def gateway(
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    host: Host = HOST,
    port: Port = PORT,
    origin: Origin = None,
    allow_private_webhooks: PrivateWebhooks = False,
    broker: Broker = None,
    semantics: options.Semantics = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    child: Annotated[bool, typer.Option("--child", hidden=True, help="End when standard input does.")] = False,
) -> None:
    """Serve the API alone, over the log and the registry of a folder or a profile, until Ctrl-C."""
    home = options.home(data, profile, lambda tls: with_options(tls, tls_cert, tls_key, tls_client_ca))
    log_to_stderr()
    home.protect()
    name = broker_name(broker)
    if broker is not None:  # it may have no service of its own, and be there for those of others
        home.registry().close()
    need_keys(home, host)
    serve(
        home,
        host,
        free_port(host, port),
        private=allow_private_webhooks,
        origins=checked_origins(home, host, origin),
        broker=name,
        semantics=semantics,
        child=child,
    )


def serve(
    home: Home,
    host: str,
    port: int,
    *,
    private: bool,
    origins: Sequence[str],
    broker: str,
    semantics: str | None,
    child: bool,
) -> None:
    """Listen until told to stop. `private`: webhooks may go to addresses that are not public.

    `semantics` is the space that is named on the command line.
    """
    from tidegate.federation.link import LinkSettings
    from tidegate.gateway.durable import DurableSettings
    from tidegate.gateway.gateway import Gateway
    from tidegate.gateway.ingest import IngestSettings, IngestWorker
    from tidegate.gateway.server import run
    from tidegate.gateway.tracing import tracing_of
    from tidegate.gateway.webhook import WebhookSettings
    from tidegate.pipelines.status import SCHEMA

    knows = home.semantics(semantics)
    registry = home.existing_registry()
    home.warn_of_plain_secrets(registry)
    log = home.log()
    webhooks = WebhookSettings(allow_private=private or home.profile.allow_private_webhooks)
    limits = home.profile.limits
    tls, certificates = server_tls(home)
    ingest = IngestSettings(
        sole=home.sole,
        name=f"the gateway at {url(host, port, is_secure=tls is not None)}",
        request_events=limits.events,
        decoded_bytes=limits.decoded_bytes,
    )
    client_tls = home.profile.tls.client

    links = LinkSettings(
        broker,
        signing_keys=home.signing_keys,
        origins=home.profile.links.pinned(),
        tls=None if client_tls is None else client_tls.context,
    )

    def make() -> Gateway:
        access = home.profile.access
        return Gateway(
            registry,
            log,
            IngestWorker(partial(Home.log, home), ingest),
            SCHEMA,
            needs_keys=access.requires(is_loopback=is_loopback(host)),
            durable=DurableSettings(webhooks=webhooks),
            access=access,
            origins=origins,
            tracing=tracing_of(os.environ),
            links=links,
            semantics=knows,
            id_key=hmac.digest(home.mask_key(), b"ids of events", "sha256"),
            limits=limits,
            tls=tls,
            certificates=certificates,
            resources=home.resources(),
            audit_locks=home.audit_locks,
            name=broker,
        )

    if child:
        threading.Thread(target=_end_with_input, daemon=True).start()
    # The server drains, and then lets the signal do what it would have done: end us, but in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        address = partial(url, host, is_secure=tls is not None)

        def listening(found: int) -> None:
            if not child:
                typer.echo(f"listening: {address(found)}")

        run(make, host, port, listening, home.profile.metrics)
    finally:
        log.close()
        registry.close()


def server_tls(home: Home) -> tuple[ServerTls | None, Certificates]:
    """The TLS that a gateway listens with, None where it does not, and whom client certificates stand for.

    Both follow their files while the gateway runs, the profile's list of certificates too.
    """
    from tidegate.gateway.certificates import Certificates
    from tidegate.gateway.tls import ServerTls

    profile = home.profile
    certificates = Certificates(profile.access.certificates)
    if profile.tls.client is not None:
        profile.tls.client.context()  # what can't be used is told of now, not at the first link
    if profile.tls.server is None:
        if profile.access.certificates:
            raise EnvironmentProblem(
                "access.certificates: nobody can show a client certificate without TLS: "
                "set tls: {cert, key, client_ca} in the profile"
            )
        return None, certificates
    if profile.access.certificates and profile.tls.server.client_ca is None:
        raise EnvironmentProblem(
            "access.certificates: expected tls.client_ca too: the authorities whose client certificates are believed"
        )
    path = profile.path

    def changed() -> None:
        if path is not None:
            certificates.define(load_profile(str(path)).access.certificates)

    return ServerTls(profile.tls.server, also=() if path is None else (path,), changed=changed), certificates


def broker_name(given: str | None) -> str:
    """The name that was given, if it can be one; else the machine's.

    >>> broker_name("city")
    'city'
    """
    from tidegate.registry import need_broker_name

    if given is None:
        given = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().partition(".")[0]).strip("_-")[:40] or "broker"
    need_broker_name(given)
    return given


def _end_with_input() -> None:
    """Whoever started this holds the other end: when that dies, however it does, so does this."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def url(host: str, port: int, *, is_secure: bool = False) -> str:
    """The address as one types it."""
    scheme = "https" if is_secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def free_port(host: str, port: int) -> int:
    """Make sure that one may listen there; give the port, which for 0 is any that is free."""
    is_loopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise EnvironmentProblem(
                f"can't listen on {url(host, port)}: {error.strerror}; choose another with --port, or --port 0"
            ) from error
        found: int = probe.getsockname()[1]
        return found


def is_loopback(host: str) -> bool:
    """Whether just this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError as error:
        raise EnvironmentProblem(f"--host: expected an address such as {HOST}, not {host!r}") from error


def checked_origins(home: Home, host: str, origins: Sequence[str] | None) -> tuple[str, ...]:
    """Whose web pages may use a gateway that listens there."""
    from tidegate.gateway.origins import checked

    return checked(origins or (), needs_keys=home.profile.access.requires(is_loopback=is_loopback(host)))


def need_keys(home: Home, host: str) -> None:
    """Listen elsewhere than on loopback only where somebody has a key, or an issuer gives them tokens."""
    access = home.profile.access
    if is_loopback(host):
        return
    if not access.requires(is_loopback=False):
        raise EnvironmentProblem(
            f"--host {host}: the profile says access: {{required: false}}, and without keys a gateway answers this "
            f"machine alone; listen on {HOST}, or set access: {{required: true}}"
        )
    if access.oidc is not None or access.certificates:
        return
    registry = home.registry()
    try:
        usable = [each for each in registry.keys().values() if each.problem(datetime.now(UTC)) is None]
    finally:
        registry.close()
    if not usable:
        raise EnvironmentProblem(
            f"--host {host}: whoever reaches this machine could read and write everything; make an API key first: "
            f"tidegate keys create NAME --role admin --data {home.folder}"
        )


class Child:
    """A gateway in a process of its own, started again when it dies."""

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
        """`announce` is told None when it starts, and its URL and certificate when it takes requests."""
        self._announce, self._is_announced = announce, False
        self._tls = home.profile.tls.server
        self._command = [sys.executable, "-m", "tidegate", "gateway", "--child"]
        self._command += ["--data", str(home.folder), "--profile", profile, "--host", host, "--port", str(port)]
        for origin in origins:
            self._command += ["--origin", origin]
        self._command += ["--allow-private-webhooks"] * private_webhooks
        self._command += [] if broker is None else ["--broker", broker]
        self._command += [] if semantics is None else ["--semantics", semantics]
        for option, file in self._tls_files():
            self._command += [option, str(file)]
        self.url = url(host, port, is_secure=self._tls is not None)
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._again_at = 0.0
        self._begun = 0.0

    @property
    def certificate(self) -> Path | None:
        """The file with the certificate that it shows; None: it listens without TLS."""
        return None if self._tls is None else self._tls.cert

    def _tls_files(self) -> Iterator[tuple[str, Path]]:
        """What was named on the command line, as the child must have it too."""
        if self._tls is not None:
            yield from (("--tls-cert", self._tls.cert), ("--tls-key", self._tls.key))
            if self._tls.client_ca is not None:
                yield "--tls-client-ca", self._tls.client_ca

    def start(self) -> None:
        """Start it."""
        self._announce(None, self.certificate)
        self._is_announced = False
        self._begun = time.monotonic()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)

    def watch(self) -> None:
        """Start it again where it has died, after a pause that grows while it keeps dying."""
        if self._process is not None and self._process.poll() is not None:
            lived_s = time.monotonic() - self._begun
            self._failures = 1 if lived_s > BACKOFF.max_s else self._failures + 1
            pause = BACKOFF.delay_s(self._failures)
            logger("tidegate.gateway").warning("the gateway has ended", code=self._process.returncode, again_in_s=pause)
            self._again_at, self._process = time.monotonic() + pause, None
        if self._process is None and time.monotonic() >= self._again_at:
            self.start()
        if not self._is_announced and self.answers("/livez"):
            self._announce(self.url, self.certificate)
            self._is_announced = True

    def answers(self, path: str) -> bool:
        """Whether a call gets a good answer: `/livez`, `/readyz`."""
        from tidegate.client.tls import pinned_context

        try:
            context = None if self.certificate is None else pinned_context(self.certificate)
            with urllib.request.urlopen(f"{self.url}{path}", timeout=1, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError, ClientError):
            return False

    def stop(self) -> None:
        """Let it drain, and wait."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
