"""Sign-in (SASL) and encryption (TLS) of Kafka clients, for the log and for topics that are sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tidegate.errors import EnvironmentProblem
from tidegate.model.secrets import Secret

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_LOGIN_MODULES: dict[Mechanism, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True)
class Sasl:
    """A user name and a password, and the SASL mechanism that they are used with."""

    mechanism: Mechanism
    username: str
    password: Secret = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates of a TLS client, as PEM files."""

    ca: str | None = None
    """Certificate authorities for the server's certificate; None: those that this machine trusts."""
    cert: str | None = None
    """The client certificate, with its chain; None: the client sends none."""
    key: str | None = None
    """The key of the client certificate, without a passphrase."""


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """Security settings of a Kafka client. The default is neither a sign-in nor encryption."""

    sasl: Sasl | None = None
    tls: Tls | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name for the combination.

        >>> KafkaSecurity(tls=Tls()).protocol
        'SSL'
        """
        encrypted = "SSL" if self.tls is not None else "PLAINTEXT"
        return encrypted if self.sasl is None else f"SASL_{encrypted}"

    def settings(self) -> dict[str, str]:
        """Return the settings for librdkafka (`confluent_kafka`); empty without any security.

        Reads the password at each call. Raises EnvironmentProblem if the password or a file can't be read.
        """
        if self.sasl is None and self.tls is None:
            return {}
        settings = {"security.protocol": self.protocol.lower()}
        if self.sasl is not None:
            settings |= {
                "sasl.mechanism": self.sasl.mechanism,
                "sasl.username": self.sasl.username,
                "sasl.password": self.sasl.password.reveal(),
            }
        if self.tls is not None:
            files = {"ca": self.tls.ca, "certificate": self.tls.cert, "key": self.tls.key}
            for name, path in files.items():
                if path is not None:
                    _pem(path)  # librdkafka's own error does not name the file
                    settings[f"ssl.{name}.location"] = path
        return settings

    def java_settings(self) -> dict[str, str]:
        """Return the settings for Kafka's Java client; empty without any security.

        Reads the password and the certificates at each call. Certificates are passed as text, not as paths, since the
        client may run on another machine. Raises EnvironmentProblem if the password or a file can't be read.
        """
        if self.sasl is None and self.tls is None:
            return {}
        settings = {"security.protocol": self.protocol}
        if self.sasl is not None:
            settings |= {"sasl.mechanism": self.sasl.mechanism, "sasl.jaas.config": _jaas(self.sasl)}
        if self.tls is not None and self.tls.ca is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _pem(self.tls.ca)}
        if self.tls is not None and self.tls.cert is not None and self.tls.key is not None:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": _pem(self.tls.cert),
                "ssl.keystore.key": _private_key(self.tls.key),
            }
        return settings


def _jaas(sasl: Sasl) -> str:
    username, password = _quoted(sasl.username), _quoted(sasl.password.reveal())
    return f"{_LOGIN_MODULES[sasl.mechanism]} required username={username} password={password};"


def _quoted(text: str) -> str:
    r"""Write text for a JAAS configuration: a password must not end the entry or begin another.

    >>> print(_quoted('a"; b\\'))
    "a\"; b\\"
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _private_key(path: str) -> str:
    """Return a private key in PKCS #8 without a passphrase, the only form that Kafka's Java client reads."""
    text = _pem(path)
    if "-----BEGIN PRIVATE KEY-----" not in text:
        raise EnvironmentProblem(
            f"TLS for Kafka: expected a key in PKCS #8 without a passphrase in {path!r}: "
            "openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW"
        )
    return text


def _pem(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a PEM file"
        raise EnvironmentProblem(f"TLS for Kafka: can't read {path!r}: {reason}") from None
