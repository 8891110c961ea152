"""Security settings for librdkafka and for Kafka's Java client. Passwords are never shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate.errors import EnvironmentProblem
from tidegate.logs.kafka_security import KafkaSecurity, Sasl, Tls


@dataclass(frozen=True)
class PlainSecret:
    value: str

    def reveal(self) -> str:
        return self.value


def test_no_security_gives_no_client_settings() -> None:
    assert KafkaSecurity().settings() == KafkaSecurity().java_settings() == {}


def test_sasl_and_tls_are_set_for_both_clients(tmp_path: Path) -> None:
    for name, kind in (("ca", "CERTIFICATE"), ("cert", "CERTIFICATE"), ("key", "PRIVATE KEY")):
        (tmp_path / name).write_text(f"-----BEGIN {kind}-----")
    tls = Tls(*(str(tmp_path / name) for name in ("ca", "cert", "key")))
    security = KafkaSecurity(Sasl("SCRAM-SHA-512", "gate", PlainSecret('p"a\\ss')), tls)
    assert security.settings() == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "gate",
        "sasl.password": 'p"a\\ss',
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.certificate.location": str(tmp_path / "cert"),
        "ssl.key.location": str(tmp_path / "key"),
    }
    java = security.java_settings()
    assert java["security.protocol"] == "SASL_SSL"
    assert java["sasl.jaas.config"].endswith('required username="gate" password="p\\"a\\\\ss";')
    assert java["ssl.truststore.certificates"] == "-----BEGIN CERTIFICATE-----"
    assert java["ssl.keystore.key"] == "-----BEGIN PRIVATE KEY-----"
    assert "p" + '"a' not in repr(security)


def test_error_names_a_certificate_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"can't read '.*/none': No such file"):
        KafkaSecurity(tls=Tls(str(tmp_path / "none"))).java_settings()


def test_tls_without_certificates_uses_those_that_the_machine_trusts() -> None:
    assert KafkaSecurity(tls=Tls()).settings() == {"security.protocol": "ssl"}
    assert KafkaSecurity(tls=Tls()).java_settings() == {"security.protocol": "SSL"}


def test_error_names_an_unreadable_file_for_both_clients(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, reason in (("none.pem", "No such file"), ("binary", "it is not a PEM file")):
        security = KafkaSecurity(tls=Tls(ca=str(tmp_path / name)))
        for settings in (security.settings, security.java_settings):
            with pytest.raises(EnvironmentProblem, match=f"TLS for Kafka: can't read '.*{name}': {reason}"):
                settings()
