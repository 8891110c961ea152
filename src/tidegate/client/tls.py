"""TLS of connections to a gateway: which authorities are trusted, and the certificate that we show."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from os import PathLike, fspath
from pathlib import Path

from tidegate.errors import ClientError

Verify = bool | str | PathLike[str] | ssl.SSLContext
"""True: the authorities that this machine trusts; a path: those of a PEM file; False: nobody is verified."""
Cert = str | PathLike[str] | tuple[str | PathLike[str], str | PathLike[str]] | None
"""A PEM file with a certificate and its key, or a file for each."""


def client_context(verify: Verify = True, cert: Cert = None) -> ssl.SSLContext:
    """A context for connections to a gateway. Raises ClientError where a file can't be used.

    >>> client_context().verify_mode, client_context(verify=False).check_hostname
    (<VerifyMode.CERT_REQUIRED: 2>, False)
    """
    context = verify if isinstance(verify, ssl.SSLContext) else _verifying(verify)
    if cert is not None:
        _load_certificate(context, cert)
    return context


def _verifying(verify: bool | str | PathLike[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif verify is True:
        context.load_default_certs()
        if not context.cert_store_stats()["x509_ca"]:  # a small container may have none
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

    def encrypted() -> str:  # else OpenSSL would ask the terminal
        raise ClientError(f"the key in {fspath(key)!r} is encrypted; write it without a passphrase")

    try:
        context.load_cert_chain(fspath(certificate), fspath(key), password=encrypted)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise ClientError(f"{fspath(certificate)!r} and {fspath(key)!r} can't be used: {reason}") from error
    except OSError as error:
        raise ClientError(f"can't read {fspath(certificate)!r} or {fspath(key)!r}: {error.strerror}") from error
    _need_valid(fspath(certificate))


def _need_valid(path: str) -> None:
    """Refuse a certificate that has expired: a gateway would end the connection without saying why.

    Without the package `cryptography`, which servers have and clients may not, nothing is checked.
    """
    try:
        from cryptography import x509
    except ImportError:
        return
    ends = x509.load_pem_x509_certificates(Path(path).read_bytes())[0].not_valid_after_utc
    if ends <= datetime.now(UTC):
        raise ClientError(f"the client certificate in {path!r} expired at {ends.isoformat()}: renew it")


def pinned_context(certificate: str | PathLike[str]) -> ssl.SSLContext:
    """A context that trusts one certificate and whatever it signs, by whatever name the gateway is reached.

    For whoever can read the gateway's own certificate, as on its own machine, where the name in it is another.
    """
    context = _verifying(certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context
