"""TLS contexts for connections to a gateway: trusted authorities and the client certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from os import PathLike, fspath
from pathlib import Path

from tidegate.errors import ClientError

Verify = bool | str | PathLike[str] | ssl.SSLContext
"""True: trust the authorities of this machine; a path: those of a PEM file; False: do not verify the gateway."""
Cert = str | PathLike[str] | tuple[str | PathLike[str], str | PathLike[str]] | None
"""The client certificate: a PEM file with certificate and key, or a pair of files."""


def client_context(verify: Verify = True, cert: Cert = None) -> ssl.SSLContext:
    """Return a context for connections to a gateway. Raises ClientError if a file can't be used.

    >>> client_context().verify_mode, client_context(verify=False).check_hostname
    (<VerifyMode.CERT_REQUIRED: 2>, False)
    """
    context = verify if isinstance(verify, ssl.SSLContext) else _verifying_context(verify)
    if cert is not None:
        _load_certificate(context, cert)
    return context


def _verifying_context(verify: bool | str | PathLike[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif verify is True:
        context.load_default_certs()
        if not context.cert_store_stats()["x509_ca"]:  # a minimal container may have none
            import certifi

            context.load_verify_locations(certifi.where())
    else:
        try:
            context.load_verify_locations(fspath(verify))
        except ssl.SSLError as error:
            raise ClientError(f"{fspath(verify)!r} holds no certificate of an authority in PEM") from error
        except OSError as error:
            raise ClientError(f"can't read the authorities in {fspath(verify)!r}: {error.strerror}") from error
    return context


def _load_certificate(context: ssl.SSLContext, cert: str | PathLike[str] | tuple[str | PathLike[str], ...]) -> None:
    certificate, key = (cert if isinstance(cert, tuple) else (cert, cert))[:2]

    def refuse_encrypted_key() -> str:  # without a callback OpenSSL would prompt on the terminal
        raise ClientError(f"the key in {fspath(key)!r} is encrypted; write it without a passphrase")

    try:
        context.load_cert_chain(fspath(certificate), fspath(key), password=refuse_encrypted_key)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise ClientError(f"{fspath(certificate)!r} and {fspath(key)!r} can't be used: {reason}") from error
    except OSError as error:
        raise ClientError(f"can't read {fspath(certificate)!r} or {fspath(key)!r}: {error.strerror}") from error
    _check_expiry(fspath(certificate))


def _check_expiry(path: str) -> None:
    """Raise ClientError if a certificate has expired: a gateway would close the connection without a reason.

    Checks nothing if the package `cryptography` is missing, which the client extra does not require.
    """
    try:
        from cryptography import x509
    except ImportError:
        return
    expires = x509.load_pem_x509_certificates(Path(path).read_bytes())[0].not_valid_after_utc
    if expires <= datetime.now(UTC):
        raise ClientError(f"the client certificate in {path!r} expired at {expires.isoformat()}: renew it")


def pinned_context(certificate: str | PathLike[str]) -> ssl.SSLContext:
    """Return a context that trusts only one certificate and those that it signed. The host name is not checked.

    For processes that can read the gateway's own certificate, such as commands on the same machine, which reach the
    gateway as 127.0.0.1 while the certificate has its public name.
    """
    context = _verifying_context(certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context
