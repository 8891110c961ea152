"""Certificates for tests: an authority that issues them for servers on loopback and for clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("localhost", "127.0.0.1", "::1")
LASTING, EXPIRED = timedelta(days=30), timedelta(days=-1)
"""How long after now a certificate holds."""
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key, as PEM files."""

    cert: Path
    key: Path
    certificate: x509.Certificate

    @property
    def pair(self) -> tuple[str, str]:
        """The two paths, as HTTP clients take them."""
        return str(self.cert), str(self.key)


class Authority:
    """A certificate authority that writes certificates and keys into a folder."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._revoked: list[x509.Certificate] = []
        usage = _key_usage(key_cert_sign=True, crl_sign=True)
        self.certificate = (
            _builder(self._name, self._name, self._key.public_key(), LASTING)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.cert = folder / f"{name.replace(' ', '-').lower()}.pem"
        self.cert.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = "server", hosts: Sequence[str] = LOOPBACK, *, ends: timedelta = LASTING) -> Issued:
        """Issue a certificate for a server that is known by some host names and addresses."""
        return self._issue(name, [_host(each) for each in hosts], SERVER, ends=ends)

    def client(self, name: str, *, uri: str | None = None, dns: str | None = None, ends: timedelta = LASTING) -> Issued:
        """Issue a certificate for a client, with `name` as its common name."""
        names: list[x509.GeneralName] = []
        names += [] if uri is None else [x509.UniformResourceIdentifier(uri)]
        names += [] if dns is None else [x509.DNSName(dns)]
        return self._issue(name, names, CLIENT, ends=ends)

    def with_subject(self, file: str, attributes: Sequence[tuple[x509.ObjectIdentifier, str]]) -> Issued:
        """Issue a client's certificate with a subject of several attributes."""
        subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
        return self._issue(file, [], CLIENT, subject=subject)

    def revoke(self, issued: Issued) -> Path:
        """Put a certificate on the revocation list, and return the file with the list."""
        self._revoked.append(issued.certificate)
        return self.revocations()

    def revocations(self) -> Path:
        """Write the revocation list, which may be empty, and return its file."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - timedelta(hours=1)).next_update(now + timedelta(days=7))
        for each in self._revoked:
            revoked = x509.RevokedCertificateBuilder().serial_number(each.serial_number).revocation_date(now).build()
            builder = builder.add_revoked_certificate(revoked)
        path = self.folder / "revoked.crl"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    def _issue(
        self,
        name: str,
        names: Sequence[x509.GeneralName],
        use: x509.ObjectIdentifier,
        *,
        ends: timedelta = LASTING,
        subject: x509.Name | None = None,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, self._name, key.public_key(), ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        issued = Issued(self.folder / f"{name}.pem", self.folder / f"{name}.key", certificate)
        issued.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        issued.key.touch(mode=0o600)
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return issued


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, ends: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + ends)
    )


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
