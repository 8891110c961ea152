"""TLS of the gateway's own socket. Certificates and keys are loaded from files, and again when the files change.

A new connection uses the newest context, so that a new certificate closes no existing connection. A new context also
has new session ticket keys, so that no session of a certificate that is no longer trusted can be resumed.
"""

from __future__ import annotations

import asyncio
import ssl
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

import structlog

from tidegate.errors import EnvironmentProblem, TidegateError
from tidegate.gateway.auth.certificates import PeerCertificate, read_peer
from tidegate.gateway.settings import TlsSettings
from tidegate.timing import periodic

CHECK_INTERVAL_S = 2.0
"""Between two checks of the files for changes."""
HANDSHAKE_TIMEOUT_S = 10.0
"""How long a peer may take for the TLS handshake. Peers are not authenticated before."""
SHUTDOWN_TIMEOUT_S = 5.0
"""How long a peer may take to answer `close_notify`."""
WARN_BEFORE_S = 14 * 86_400.0
"""Warnings start this long before a certificate expires."""
WARN_INTERVAL_S = 86_400.0

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2: only forward secrecy and authenticated encryption. All ciphers of TLS 1.3 have both."""

_log = structlog.get_logger("tidegate.tls")

Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A TLS context, and the facts about its files that are needed later."""

    context: ssl.SSLContext
    expires_at: datetime
    trust: tuple[bytes, bytes]
    """The content of the CA file and of the revocation list, which decide which client certificates are trusted."""


def load(settings: TlsSettings) -> Loaded:
    """Load all files. Raises an `EnvironmentProblem` that names the wrong file and what to do."""
    chain = _read(settings.cert, "tls.cert")
    expires_at = _checked_expiry(chain, settings.cert)
    _read(settings.key, "tls.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, settings)
    trust = b"", b""
    if settings.client_ca is not None:
        trust = _read(settings.client_ca, "tls.client_ca"), b""
        _load_trusted(context, settings.client_ca, "tls.client_ca")
        context.verify_mode = ssl.CERT_OPTIONAL
        context.num_tickets = 0
    if settings.crl is not None:
        trust = trust[0], _read(settings.crl, "tls.crl")
        _check_revocations(trust[1], settings.crl)
        _load_trusted(context, settings.crl, "tls.crl")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return Loaded(context, expires_at, trust)


def _read(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EnvironmentProblem(f"{where}: can't read {str(path)!r}: {error.strerror}") from error


def _checked_expiry(chain: bytes, path: Path) -> datetime:
    """Return when the first certificate of a chain expires. Raises if it has expired, or is not valid yet."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificates(chain)[0]
    except (ValueError, IndexError) as error:
        raise EnvironmentProblem(f"tls.cert: {str(path)!r} holds no certificate in PEM") from error
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc <= now:
        expired = certificate.not_valid_after_utc.isoformat()
        raise EnvironmentProblem(f"tls.cert: the certificate in {str(path)!r} expired at {expired}: renew it")
    if certificate.not_valid_before_utc > now:
        begins = certificate.not_valid_before_utc.isoformat()
        raise EnvironmentProblem(
            f"tls.cert: the certificate in {str(path)!r} does not hold before {begins}: check the clock of this machine"
        )
    return certificate.not_valid_after_utc


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    cert, key = str(settings.cert), str(settings.key)

    def encrypted() -> str:  # otherwise OpenSSL would prompt in the terminal
        raise EnvironmentProblem(
            f"tls.key: the key in {key!r} is encrypted; write it without a passphrase, readable for this user alone: "
            "openssl pkey -in KEY -out NEW"
        )

    try:
        context.load_cert_chain(cert, key, password=encrypted)
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise EnvironmentProblem(
                f"tls.key: the key in {key!r} is not the key of the certificate in {cert!r}"
            ) from error
        raise EnvironmentProblem(f"tls: {cert!r} and {key!r} can't be used: {_reason(error)}") from error
    except OSError as error:
        raise EnvironmentProblem(f"tls: can't read {cert!r} or {key!r}: {error.strerror}") from error


def _load_trusted(context: ssl.SSLContext, path: Path, where: str) -> None:
    try:
        context.load_verify_locations(str(path))
    except ssl.SSLError as error:
        raise EnvironmentProblem(f"{where}: {str(path)!r} can't be used: {_reason(error)}") from error


def _check_revocations(data: bytes, path: Path) -> None:
    """Warn if a revocation list is out of date, because OpenSSL then refuses every client certificate."""
    from cryptography import x509

    try:
        listed = x509.load_pem_x509_crl(data)
    except ValueError as error:
        raise EnvironmentProblem(f"tls.crl: {str(path)!r} holds no revocation list in PEM") from error
    due = listed.next_update_utc
    if due is not None and due <= datetime.now(UTC):
        _log.warning("the revocation list is out of date: client certificates are refused", file=str(path), due=due)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def warn_of_permissions(settings: TlsSettings) -> None:
    """Warn if other users of this machine can read the private key, or its group can change it."""
    mode = stat.S_IMODE(settings.key.stat().st_mode)
    if mode & 0o027:
        _log.warning("other users can read the private key: chmod 600 it", file=str(settings.key), mode=f"{mode:04o}")


class _CurrentContext(ssl.SSLContext):
    """The context that the server listens with. It creates each connection with the newest context."""

    current: ssl.SSLContext

    def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*args, **more)


class Closable(Protocol):
    """The protocol of a connection."""

    transport: asyncio.Transport


class ServerTls:
    """The TLS configuration of a gateway, which follows its files. Runs on the event loop."""

    def __init__(
        self,
        settings: TlsSettings,
        *,
        also: Sequence[Path] = (),
        changed: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Load the files, or raise an `EnvironmentProblem`.

        `changed` is called when one of the files, or of `also`, has changed. It may raise.
        """
        self.settings = settings
        self._watched, self._changed, self._now = (*settings.files, *also), changed, now
        self._seen = self._signature()
        self._loaded = load(settings)
        warn_of_permissions(settings)
        self.context = _CurrentContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.current = self._loaded.context
        self.failures = 0
        """Number of changes after which the files could not be loaded."""
        self._is_behind = False
        self._warned_at: datetime | None = None
        self._certified: WeakSet[Closable] = WeakSet()

    @property
    def expires_at(self) -> datetime:
        """The expiry of the current certificate."""
        return self._loaded.expires_at

    def peer(self, protocol: Closable) -> PeerCertificate | None:
        """Return the client certificate of a new connection; None if there is none, or it can't be parsed."""
        tls = protocol.transport.get_extra_info("ssl_object")
        der = None if tls is None or self.settings.client_ca is None else tls.getpeercert(binary_form=True)
        if not der:
            return None
        try:
            certificate = read_peer(der)
        except ValueError as error:
            _log.warning("a client certificate can't be read", problem=str(error))
            return None
        self._certified.add(protocol)
        return certificate

    async def follow(self) -> None:
        """Reload the files when they change, until cancelled. Runs as a task of the gateway."""
        await periodic(self._check, CHECK_INTERVAL_S)

    async def _check(self) -> None:
        signature = await asyncio.get_running_loop().run_in_executor(None, self._signature)
        if self._is_behind or signature != self._seen:
            self._reload(signature)
        self._warn_of_expiry()

    def _reload(self, signature: Signature) -> None:
        """Load the files again. If that fails, log it and keep the previous context."""
        try:
            loaded = load(self.settings)
            self._changed()
        except (TidegateError, OSError) as problem:
            if signature != self._seen or not self._is_behind:
                self.failures += 1
                _log.error("TLS files can't be loaded; the old ones stay in use", problem=str(problem))
            self._is_behind, self._seen = True, signature
            return
        has_trust_changed = loaded.trust != self._loaded.trust
        self._is_behind, self._seen, self._loaded = False, signature, loaded
        self.context.current = loaded.context
        _log.info("TLS files were loaded again", expires=loaded.expires_at.isoformat())
        if has_trust_changed:
            self._drop_certified()

    def _drop_certified(self) -> None:
        """Close connections with a client certificate, which may no longer be trusted. The clients reconnect."""
        dropped = list(self._certified)
        self._certified.clear()
        for connection in dropped:
            connection.transport.abort()
        _log.info("the trusted authorities changed: connections with client certificates closed", count=len(dropped))

    def _warn_of_expiry(self) -> None:
        left = (self.expires_at - self._now()).total_seconds()
        if left > WARN_BEFORE_S:
            return
        if self._warned_at is None or (self._now() - self._warned_at).total_seconds() >= WARN_INTERVAL_S:
            self._warned_at = self._now()
            text = "the TLS certificate has expired" if left <= 0 else "the TLS certificate expires soon"
            _log.warning(text, file=str(self.settings.cert), expires=self.expires_at.isoformat())

    def _signature(self) -> Signature:
        return tuple(_signature(file) for file in self._watched)


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
