"""Kafka as the log with SASL and TLS: who is let in, and that no secret is shown by anything that runs."""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import kafka_broker
from tests.certificates import Authority
from tests.kafka_broker import Secure
from tests.pipelines.running import until
from tests.security import processes
from tidegate.cli.data_folder.home import Home
from tidegate.cli.profile import Profile, load_profile
from tidegate.errors import EnvironmentProblem, LogError, TidegateError
from tidegate.ingress.connections import KafkaConnection
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import KafkaLog, SegmentLog
from tidegate.logs.factory import KafkaLogSettings
from tidegate.services import loads
from tidegate.services.definitions import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.xdist_group("secure-kafka")]

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
services:
  fast: {from: gps_taxi, pipeline: [{filter: speed > 60}]}
"""
PASSWORD = f"hush-{secrets.token_hex(8)}"


@dataclass(frozen=True)
class Broker:
    """A Kafka that asks for a password and a client certificate."""

    address: str
    authority: Authority

    def profile(self, folder: Path, **other: Any) -> Path:
        """Write a profile that is let in, unless `other` says something else."""
        issued = self.authority.client("tidegate")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kafka.password").write_text(f"{PASSWORD}\n")
        kafka = {
            "brokers": self.address,
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": "tidegate", "password": "file:kafka.password"},
            "tls": {"ca": str(self.authority.cert), "cert": str(issued.cert), "key": str(issued.key)},
        }
        path = folder / "profile.yaml"
        path.write_text(yaml.safe_dump({"log": {"kafka": {**kafka, **other}}}))
        return path

    def log(self, folder: Path, **other: Any) -> KafkaLog:
        """Open the log as the profile says it."""
        settings = kafka_settings(load_profile(str(self.profile(folder, **other))))
        return KafkaLog(settings.brokers, timeout_s=3.0, client_settings=settings.security.settings())


def kafka_settings(profile: Profile) -> KafkaLogSettings:
    assert isinstance(profile.log, KafkaLogSettings)
    return profile.log


def topic_config(broker: Broker, topic: str) -> dict[str, str]:
    """Return the settings of a topic, as the broker has them."""
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    issued = broker.authority.client("admin")
    client: dict[str, str | int | float | bool] = {
        "bootstrap.servers": broker.address,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "tidegate",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(broker.authority.cert),
        "ssl.certificate.location": str(issued.cert),
        "ssl.key.location": str(issued.key),
    }
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(client)  # the request needs it until it is answered
    answer = admin.describe_configs([resource], request_timeout=30)[resource].result()
    return {name: entry.value for name, entry in answer.items()}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        kafka_broker.need_kafka()
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    folder = tmp_path_factory.mktemp("secure-kafka")
    authority = Authority(folder / "ca")
    with kafka_broker.running(folder, Secure(authority, "tidegate", PASSWORD)) as address:
        yield Broker(address, authority)


def problem_of(log: KafkaLog) -> str:
    try:
        with pytest.raises(LogError) as raised:
            log.streams()
        return str(raised.value)
    finally:
        log.close()


def test_wrong_password_is_reported(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("another-password")
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "tidegate", "password": "file:other"}
    said = problem_of(broker.log(tmp_path, sasl=sasl))
    assert "refuses the connection" in said
    assert "check sasl and tls of log.kafka" in said
    assert "another-password" not in said


def test_missing_secret_is_reported_with_its_place(broker: Broker, tmp_path: Path) -> None:
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "tidegate", "password": "env:NO_SUCH_PASSWORD"}
    with pytest.raises(TidegateError, match="NO_SUCH_PASSWORD"):
        broker.log(tmp_path, sasl=sasl)


def test_broker_of_another_authority_is_not_trusted(broker: Broker, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign", "Foreign CA")
    said = problem_of(broker.log(tmp_path, tls={"ca": str(foreign.cert)}))
    assert "refuses the connection" in said
    assert "verify failed" in said


def test_key_that_java_cannot_read_is_reported_before_spark_starts(broker: Broker, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    issued = broker.authority.client("sec1")
    key: Any = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    old = serialization.PrivateFormat.TraditionalOpenSSL
    issued.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, old, serialization.NoEncryption()))
    tls = {"ca": str(broker.authority.cert), "cert": str(issued.cert), "key": str(issued.key)}
    home = Home(tmp_path, load_profile(str(broker.profile(tmp_path, tls=tls))))
    with pytest.raises(EnvironmentProblem, match="openssl pkcs8 -topk8"):
        kafka_settings(home.profile).security.java_settings()


def test_more_replicas_than_brokers_are_told(broker: Broker, tmp_path: Path) -> None:
    log = Home(tmp_path, load_profile(str(broker.profile(tmp_path, replication=3)))).log()
    try:
        with pytest.raises(LogError, match=r"refuses: .*replication factor.* 3"):
            log.create("not_created")
        assert "not_created" not in log.streams()
    finally:
        log.close()


def test_service_runs_over_secure_kafka_and_shows_no_secret(broker: Broker, tmp_path: Path) -> None:
    topics = {"prefix": "ours.", "replication": 1, "min_in_sync": 1, "partitions": 3, "retention": "48h"}
    profile = broker.profile(tmp_path, **topics)
    data = tmp_path / "data"
    with processes.up(data, "--profile", profile, services=CITY, env={"TIDEGATE_LOG": "json"}) as running:
        with running.client() as client:
            events = [{"vid": f"B{n}", "speed": 50.0 + n, "time": "2026-01-01T00:00:00Z"} for n in range(20)]
            answer = client.post("/v1/streams/gps_taxi/events", json=events)
            assert answer.json()["accepted"] == 20, answer.text

            def delivered() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = client.get("/v1/services/fast/events?from=beginning").json()["events"]
                return found

            until(lambda: len(delivered()) == 9, "the events of the service")
            configs = {name: topic_config(broker, f"ours.{name}") for name in ("_status", "fast")}
            assert configs["_status"]["retention.ms"] == str(48 * 3_600_000)
            assert configs["fast"]["min.insync.replicas"] == "1"
            outside = Home(tmp_path, load_profile(str(profile))).log()
            assert (len(outside.partitions("fast")), len(outside.partitions("gps_taxi"))) == (3, 1)
            outside.close()
            shown = [client.get(path).text for path in ("/v1/services", "/metrics", "/v1/services/fast/status")]
        shown.append(running.output.read_text())
        shown.append(subprocess.run(["ps", "axeww"], capture_output=True, text=True, check=True).stdout)
        shown += [file.read_text(errors="replace") for file in data.rglob("*") if file.is_file()]
        private = broker.authority.folder / "tidegate.key"
        secret_lines = [PASSWORD, private.read_text().splitlines()[1]]
        for text in shown:
            for secret in secret_lines:
                assert secret not in text, json.dumps(text[max(0, text.find(secret) - 200) :][:300])


def test_topic_is_read_over_a_named_connection(broker: Broker, tmp_path: Path) -> None:
    from tidegate.ingress.feeds.kafka import KafkaFeed

    profile = load_profile(str(broker.profile(tmp_path)))
    connection = KafkaConnection(kafka_settings(profile).brokers, kafka_settings(profile).security)
    events = [json.dumps({"vid": f"B{n}", "speed": 1.0, "time": "2026-01-01T00:00:00Z"}).encode() for n in range(5)]
    elsewhere = Home(tmp_path, profile).log()
    elsewhere.create("source_of_this")
    elsewhere.append("source_of_this", "0", events)
    elsewhere.close()
    stream, log, stop = loads(CITY).streams["gps_taxi"], SegmentLog(tmp_path / "log"), threading.Event()
    log.create("gps_taxi")
    feed = KafkaFeed(Kafka("source_of_this", connection="plant"), RawStreamWriter(log, stream), connection=connection)
    running = threading.Thread(target=feed.run, args=[stop])
    running.start()
    try:
        until(lambda: len(log.read("gps_taxi", log.begin("gps_taxi"), 10).records) == 5, "the records of the topic")
    finally:
        stop.set()
        running.join()
        log.close()


def test_plans_and_logs_of_spark_show_no_secret(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from tidegate.pipelines.kafka import KafkaStreams
    from tidegate.pipelines.session import service_session

    home = Home(tmp_path, load_profile(str(broker.profile(tmp_path))))
    spark = service_session("secrets", kafka=True)
    log = home.log()
    try:
        streams = home.streams(spark, log)
        assert isinstance(streams, KafkaStreams)
        log.create("plan_of_this")
        frame = streams.scan("plan_of_this", "s")
        execution = frame._jdf.queryExecution()
        phases = (execution.logical(), execution.analyzed(), execution.optimizedPlan())
        plans = "".join(str(plan.treeString()) for plan in phases)
        assert "cluster-" in plans, "plans show the options of a frame: the name of what the JVM keeps"
        written = capfd.readouterr()
        for text in (plans, written.out, written.err, str(spark.sparkContext.getConf().getAll())):
            assert PASSWORD not in text
            assert "BEGIN PRIVATE KEY" not in text
    finally:
        log.close()
