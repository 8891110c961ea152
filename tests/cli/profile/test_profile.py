"""Profiles: their settings, and the messages for invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.profile import Profile, load_profile
from tidegate.cli.profile.secret_reference import SecretReference
from tidegate.cli.profile.spark import SparkSettings
from tidegate.errors import EnvironmentProblem
from tidegate.gateway.settings import AccessSettings, OidcSettings, Quotas
from tidegate.logs.factory import KafkaLogSettings


def test_embedded_profile_needs_no_file() -> None:
    assert load_profile("embedded") == Profile()


def test_profile_of_a_cluster_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text(
        "master: spark://head:7077\nlog: {kafka: 'head:9092'}\ncheckpoints: hdfs://head/tidegate\n"
        "spark: {spark.cores.max: 8, spark.ui.enabled: true, spark.authenticate.secret: 'file:secret'}\n"
    )
    secret = SecretReference("file", str(tmp_path / "secret"), f"{path}: spark.spark.authenticate.secret")
    spark = SparkSettings({"spark.cores.max": "8", "spark.ui.enabled": "true"}, secret)
    expected = Profile("spark://head:7077", spark, KafkaLogSettings("head:9092"), checkpoints="hdfs://head/tidegate")
    assert load_profile(str(path)) == load_profile(str(path.with_suffix(""))) == expected
    (tmp_path / "secret").write_text("hush\n")
    assert spark.reveal() == {**spark.public, "spark.authenticate.secret": "hush"}
    assert "hush" not in repr(load_profile(str(path)))


def test_setting_of_spark_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("spark: {spark.driver.host: 'env:POD_NAME', spark.executor.cores: 8}")
    settings = load_profile(str(path)).spark
    monkeypatch.setenv("POD_NAME", "runner-0")
    assert settings.reveal() == {"spark.executor.cores": "8", "spark.driver.host": "runner-0"}
    monkeypatch.delenv("POD_NAME")
    with pytest.raises(
        EnvironmentProblem, match=r"spark\.spark\.driver\.host: the environment variable 'POD_NAME' is not"
    ):
        settings.reveal()


@pytest.mark.parametrize(
    "profile",
    [
        "master: spark://head:7077\nshared: true\nspark: {spark.authenticate: false}",
        "master: yarn\nshared: true",
        "master: 'k8s://https://head:6443'\nshared: true",
        "master: 'local[4]'",
    ],
)
def test_spark_secret_is_optional_if_spark_creates_one_or_authentication_is_off(profile: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(profile)
    assert load_profile(str(path)).spark.secret is None


def test_settings_of_kafka_topics_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    topics = "prefix: tidegate., replication: 3, min_in_sync: 2, partitions: 8, retention: 48h"
    path.write_text(f"log: {{kafka: {{brokers: 'head:9092', {topics}}}}}")
    log = load_profile(str(path)).log
    assert log == KafkaLogSettings(
        "head:9092", prefix="tidegate.", replication=3, min_in_sync=2, partitions=8, retention_s=172_800.0
    )
    assert log.topic_settings() == {"min.insync.replicas": "2", "retention.ms": "172800000"}


OIDC = "access: {oidc: {issuer: 'https://id.example.org', audience: a, %s}}"


def test_oidc_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(OIDC % "services_claim: services, leeway: 5s, fresh: 2m, algorithms: [ES256]")
    oidc = OidcSettings(
        "https://id.example.org", "a", services_claim="services", leeway_s=5, fresh_s=120.0, algorithms=("ES256",)
    )
    assert load_profile(str(path)) == Profile(access=AccessSettings(oidc))


def test_quotas_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("access: {quotas: {connections: 7, events: 1e3, durable: none}}")
    assert load_profile(str(path)).access.quotas == Quotas(connections=7, events=1000.0, durable=None)


@pytest.mark.parametrize(
    ("settings", "on_loopback", "elsewhere"),
    [
        (AccessSettings(), False, True),
        (AccessSettings(OidcSettings("http://localhost", "a")), True, True),
        (AccessSettings(OidcSettings("http://localhost", "a"), required=False), False, False),
        (AccessSettings(required=True), True, True),
    ],
)
def test_access_requires_a_caller_beyond_loopback_or_by_the_profile(
    settings: AccessSettings, on_loopback: bool, elsewhere: bool
) -> None:
    assert (settings.requires(is_loopback=True), settings.requires(is_loopback=False)) == (on_loopback, elsewhere)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[1]",
            "expected a map with master, spark, log, shared, registry, webhooks, access, semantics, functions, roots, "
            "connections, limits, tls, secrets, links, metrics, checkpoints, not [1]",
        ),
        ("semantics: [space]", "semantics: expected the folder of a space, not ['space']"),
        ("mater: local", "unknown key 'mater'; did you mean 'master'?"),
        ("log: kafka", "log: expected files, {kafka: 'host:9092'}, or {kafka: {brokers: 'host:9092', sasl:"),
        ("log: {kafka: {sasl: {}}}", "log.kafka.brokers: expected host:9092, or several with commas, not nothing"),
        ("log: {kafka: {brokers: 'a:1', sals: {}}}", "log.kafka: unknown key 'sals'; did you mean 'sasl'?"),
        (
            "log: {kafka: {brokers: 'a:1', sasl: {mechanism: GSSAPI}}}",
            "log.kafka.sasl.mechanism: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, not 'GSSAPI'",
        ),
        (
            "log: {kafka: {brokers: 'a:1', sasl: {mechanism: PLAIN, username: me, password: hush}}}",
            "log.kafka.sasl.password: expected a reference to a secret, env:NAME or file:PATH",
        ),
        (
            "log: {kafka: {brokers: 'a:1', replicas: 3}}",
            "log.kafka: unknown key 'replicas'; did you mean 'replication'?",
        ),
        ("log: {kafka: {brokers: 'a:1', replication: 0}}", "log.kafka.replication: expected a whole number from 1 to"),
        ("log: {kafka: {brokers: 'a:1', partitions: yes}}", "log.kafka.partitions: expected a whole number from 1 to"),
        (
            "log: {kafka: {brokers: 'a:1', replication: 2, min_in_sync: 3}}",
            "log.kafka.min_in_sync: expected at most replication (2), not 3",
        ),
        ("log: {kafka: {brokers: 'a:1', retention: 24}}", "log.kafka.retention: expected a length of time such as 24h"),
        ("log: {kafka: {brokers: 'a:1', prefix: 'a/b'}}", "log.kafka.prefix: expected at most 64 letters, digits"),
        ("log: {kafka: {brokers: 'a:1', tls: {cert: a}}}", "log.kafka.tls: expected cert and key together"),
        ("log: {kafka: {brokers: 'a:1', tls: hush}}", "log.kafka.tls: expected a map with ca, cert, key"),
        ("registry: {url: 'postgresql://me@head/db', tls: yes please}", "registry.tls: expected true, or a map"),
        ("registry: {url: 'postgresql://me@head/db', tls: {mode: prefer}}", "registry.tls.mode: expected one of"),
        ("registry: {url: 'postgresql://me@head/db', tls: {ca: none.pem}}", "registry.tls.ca: there is no file"),
        ("registry: {url: 'postgresql://me@head/db', tls: {mode: verify-ca}}", "registry.tls.ca: expected the path"),
        (
            "registry: {url: 'postgresql://me@head/db?sslmode=disable', tls: true}",
            "registry.tls: the url has TLS parameters too; remove them from the url",
        ),
        ("master: 7", "master: expected text such as 'spark://host:7077', not 7"),
        ("spark: 7", "spark: expected settings by name, not 7"),
        (
            "{master: 'spark://head:7077', shared: true}",
            "spark: spark://head:7077 and this process authenticate each other with a secret, but the profile has "
            "none: add spark.authenticate.secret: env:NAME or file:PATH",
        ),
        (
            "spark: {spark.authenticate.secret: hush}",
            "spark.spark.authenticate.secret: expected a reference to a secret, env:NAME or file:PATH, not the secret "
            "itself",
        ),
        ("shared: perhaps", "shared: expected true or false, not 'perhaps'"),
        ("master: spark://head:7077", "use Kafka for the log"),
        (
            "{master: 'spark://head:7077', log: {kafka: 'head:9092'}, spark: {spark.authenticate: false}}",
            "the states of services would be kept in a folder of this one: name a place that all machines reach",
        ),
        ("checkpoints: states", "checkpoints: expected the absolute path of a folder, or a URI such as hdfs://head/"),
        (
            "checkpoints: 'hdfs://'",
            "checkpoints: expected the absolute path of a folder, or a URI such as hdfs://head/",
        ),
        ("master: [", "expected a profile in YAML: line 1: "),
        ("webhooks: {retry: {attempts: 0}}", "webhooks.retry.attempts: expected a whole number from 1 to 1,000, not 0"),
        ("webhooks: yes please", "webhooks: expected a map with allow_private, timeout, retry, not 'yes please'"),
        ("registry: mysql://me:hush@head/db", "registry: expected postgresql://user:password@host:port/database, or {"),
        ("registry: 'postgresql://[me:hush'", "registry: expected postgresql://user:password@host:port/database, or {"),
        ("registry: {url: 'postgresql://me@head/db', pasword: hush}", "registry: expected postgresql://"),
        (
            "registry: {url: 'postgresql://me@head/db', password: hush}",
            "registry: password: expected {env: NAME} or {file: PATH}",
        ),
        (
            "registry: {url: 'postgresql://me:hush@head/db', password: {env: HUSH}}",
            "registry: with a password key, expected a url with a user and without a password",
        ),
        ("registry: postgresql://me:hush@head/db\nmaster: [", "expected a profile in YAML: line 2: "),
        ("metrics: {prt: 1}", "metrics: unknown key 'prt'; did you mean 'port'?"),
        (
            "metrics: {port: 0}",
            "metrics.port: expected a number from 1 to 65535, not 0; expected a port, or {port: 9464,",
        ),
        ("metrics: {}", "metrics.port: expected a number from 1 to 65535, not None"),
        ("metrics: yes", "metrics.port: expected a number from 1 to 65535, not True"),
        ("metrics: {port: 1, host: all}", "metrics.host: expected an address such as 127.0.0.1, not 'all'"),
        ("access: 7", "access: expected a map with oidc, required, quotas, certificates, proxies, not 7"),
        ("access: {proxies: 127.0.0.1}", "access.proxies: expected a list of addresses or networks"),
        ("access: {proxies: [nginx]}", "such as [127.0.0.1, 10.0.0.0/8], not 'nginx'"),
        ("access: {oicd: {}}", "access: unknown key 'oicd'; did you mean 'oidc'?"),
        ("access: {required: 7}", "access.required: expected true or false, not 7"),
        ("access: {oidc: {audience: a}}", "access.oidc.issuer: expected a URL such as https://"),
        (
            "access: {oidc: {issuer: 'https://x'}}",
            "access.oidc.audience: expected the value of aud, such as tidegate",
        ),
        ("access: {quotas: 7}", "access.quotas: expected a map with connections, subscriptions, durable, events,"),
        ("access: {quotas: {conections: 7}}", "'conections' is no quota; expected one of connections, subscriptions,"),
        ("access: {quotas: {connections: 0.5}}", "quotas.connections: expected a whole number above 0, not '0.5'"),
        ("access: {quotas: {events: 0}}", "access.quotas.events: expected a number above 0, not '0'"),
        ("access: {quotas: {events: inf}}", "access.quotas.events: expected a number above 0, not 'inf'"),
        (OIDC % "issuers: x", "access.oidc: unknown key 'issuers'; did you mean 'issuer'?"),
        (
            OIDC % "jwks_url: 'http://id.example.org/keys'",
            "jwks_url: expected a URL that begins with https:, not",
        ),
        (
            OIDC % "roles_claim: 7",
            "roles_claim: expected a claim, such as roles or realm_access.roles, not 7",
        ),
        (OIDC % "algorithms: HS256", "access.oidc.algorithms: expected a list of algorithms, not 'HS256'"),
        (OIDC % "algorithms: [HS256]", "access.oidc.algorithms: expected some of RS256, RS384,"),
        (OIDC % "leeway: 5", "access.oidc.leeway: expected a length of time such as 30s, not 5"),
    ],
)
def test_invalid_profile_is_refused_with_the_key_and_without_secrets(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(EnvironmentProblem) as caught:
        load_profile(str(path))
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_password_of_the_registry_is_in_the_url_or_referenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.yaml"

    def address(registry: str) -> str:
        path.write_text(f"registry: {registry}\nwebhooks: {{allow_private: true}}\n")
        profile = load_profile(str(path))
        assert profile.webhooks.allow_private
        assert profile.database is not None
        assert "hush" not in repr(profile)
        return profile.database.address()

    whole = "postgresql://me:hush%25%2F%40%3A@head:5432/db?sslmode=require"
    assert address(whole) == whole
    monkeypatch.setenv("THE_PASSWORD", "hush%/@:")
    (tmp_path / "password").write_text("hush%/@:\n")
    url = "postgresql://me@head:5432/db?sslmode=require"
    assert address(f"{{url: '{url}', password: {{env: THE_PASSWORD}}}}") == whole
    assert address(f"{{url: '{url}', password: {{file: password}}}}") == whole
    with pytest.raises(
        EnvironmentProblem, match=r"^the registry's password: the environment variable 'NONE' is not set; set it$"
    ):
        address(f"{{url: '{url}', password: {{env: NONE}}}}")
    with pytest.raises(EnvironmentProblem, match=r"^the registry's password: can't read .*none': No such file"):
        address(f"{{url: '{url}', password: {{file: none}}}}")


def test_cluster_with_a_shared_folder_can_use_files() -> None:
    assert Profile("spark://head:7077", shared=True).is_local is False


def test_unknown_profile_is_named() -> None:
    with pytest.raises(EnvironmentProblem, match=r"no profile .cluster.; expected .embedded., or the path"):
        load_profile("cluster")
