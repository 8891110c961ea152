"""Connections of the profile against real brokers: MQTT over TLS, Kafka with SASL and TLS."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.certificates import Authority
from tests.ingress.feeds import mosquitto
from tests.ingress.feeds.mosquitto import Mosquitto
from tests.ingress.kit import events
from tests.pipelines.running import until
from tidegate.cli.data_folder.home import Home
from tidegate.cli.profile import load_profile
from tidegate.errors import ServiceError, SourceError
from tidegate.ingress.feeds import Feeds, start_feeds
from tidegate.ingress.feeds.feed import FeedContext, FeedRequest
from tidegate.ingress.feeds.sources import make_feed
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.logs.clock import SystemClock
from tidegate.pipelines.resources import RunnerResources
from tidegate.services import Definitions, loads
from tidegate.timing import Backoff

pytestmark = pytest.mark.processes

PASSWORD = 'hun"ter\\2'
QUICK = Backoff(first_s=0.05, max_s=0.1)
STREAM = "streams: {{s: {{schema: {{n: int64}}, source: {{{kind}: {{topic: fleet, connection: plant}}}}}}}}"


@contextmanager
def fed(folder: Path, kind: str, connection: dict[str, Any]) -> Iterator[tuple[Feeds, SegmentLog]]:
    """Run the feed of a stream that names a connection of a profile, as a remote definition does."""
    profile = folder / "profile.yaml"
    profile.write_text(yaml.safe_dump({"connections": {"plant": {kind: connection}}}))
    home = Home(folder / "data", load_profile(str(profile)))
    log = SegmentLog(folder / "log")
    try:
        with start_feeds(
            remote(STREAM.format(kind=kind)), log, backoff=QUICK, resources=home.runner_resources().for_feeds()
        ) as feeds:
            yield feeds, log
    finally:
        log.close()


def remote(text: str) -> Definitions:
    """Read definitions as the registry gives those that came over the network."""
    given = loads(text)
    return replace(given, streams={name: replace(each, origin="remote") for name, each in given.streams.items()})


def error(feeds: Feeds) -> str:
    until(lambda: feeds.status()["s"]["error"] is not None, "the feed's error", 30)
    return str(feeds.status()["s"]["error"])


# MQTT ------------------------------------------------------------------------


@dataclass(frozen=True)
class Plant:
    """A broker that takes those who show a client certificate and the password, over TLS alone."""

    broker: Mosquitto
    authority: Authority
    folder: Path

    def connection(self, **changes: Any) -> dict[str, Any]:
        client = self.authority.client("tidegate")
        tls = {"ca": str(self.authority.cert), "cert": str(client.cert), "key": str(client.key)}
        given = {
            "broker": f"localhost:{self.broker.port}",
            "username": "tidegate",
            "password": f"file:{self.folder / 'password'}",
            "tls": tls,
        }
        return {**given, **changes}

    def publish(self, *numbers: int) -> None:
        paho = pytest.importorskip("paho.mqtt.client")
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "publisher")
        client.username_pw_set("tidegate", PASSWORD)
        client.tls_set(str(self.authority.cert), *self.authority.client("publisher").pair)
        client.connect("localhost", self.broker.port)
        client.loop_start()
        for number in numbers:
            client.publish("fleet", json.dumps({"n": number}), qos=1).wait_for_publish(20)
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    pytest.importorskip("paho.mqtt.client")
    if mosquitto.PROGRAM is None or shutil.which("mosquitto_passwd") is None:
        pytest.skip(mosquitto.HOW)
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    authority = Authority(tmp_path / "certificates")
    server = authority.server()
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    made = ["mosquitto_passwd", "-b", "-c", str(folder / "users"), "tidegate", PASSWORD]
    subprocess.run(made, check=True, capture_output=True)
    access = (
        f"cafile {authority.cert}\ncertfile {server.cert}\nkeyfile {server.key}\nrequire_certificate true\n"
        f"allow_anonymous false\npassword_file {folder / 'users'}"
    )
    broker = Mosquitto(folder, access)
    yield Plant(broker, authority, tmp_path)
    broker.end()


def test_mqtt_over_tls_with_a_certificate_and_a_password_feeds_a_stream(plant: Plant, tmp_path: Path) -> None:
    with fed(tmp_path, "mqtt", plant.connection()) as (feeds, log):

        def is_heard() -> bool:
            plant.publish(0)
            return len(events(log, "s")) > 0

        until(is_heard, "the first message", 60, 0.1)
        # More than one TLS record holds: what is decrypted already must be read without new bytes on the socket.
        plant.publish(*range(1, 301))
        until(lambda: {each["n"] for each in events(log, "s")} >= set(range(301)), "all messages", 60)
        assert feeds.status()["s"]["error"] is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves the socket to Python
def test_mqtt_broker_of_another_authority_gets_no_password(plant: Plant, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "Other CA")
    with fed(tmp_path, "mqtt", plant.connection(tls={"ca": str(other.cert)})) as (feeds, _):
        assert "CERTIFICATE_VERIFY_FAILED" in error(feeds)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves the socket to Python
def test_mqtt_broker_of_another_name_gets_no_password(plant: Plant, tmp_path: Path) -> None:
    plant.broker.end()
    elsewhere = plant.authority.server("elsewhere", ["elsewhere.example"])
    config = plant.broker._config
    config.write_text(config.read_text().replace("server.pem", "elsewhere.pem").replace("server.key", "elsewhere.key"))
    assert elsewhere.cert.name in config.read_text()
    plant.broker.start()
    with fed(tmp_path, "mqtt", plant.connection()) as (feeds, _):
        assert "certificate is not valid for 'localhost'" in error(feeds)


def test_mqtt_without_the_client_certificate_is_refused(plant: Plant, tmp_path: Path) -> None:
    with fed(tmp_path, "mqtt", plant.connection(tls={"ca": str(plant.authority.cert)})) as (feeds, _):
        assert "MQTT broker" in error(feeds)
        assert PASSWORD not in error(feeds)


def test_mqtt_with_another_password_is_refused(plant: Plant, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("wrong password")
    with fed(tmp_path, "mqtt", plant.connection(password=f"file:{tmp_path / 'wrong'}")) as (feeds, _):
        assert "the MQTT broker refuses us" in error(feeds)
        assert "wrong password" not in error(feeds)


def test_mqtt_certificates_that_can_not_be_used_are_named(plant: Plant, tmp_path: Path) -> None:
    with fed(tmp_path, "mqtt", plant.connection(tls={"ca": str(tmp_path / "none.pem")})) as (feeds, _):
        assert "can't use the certificates of the MQTT connection" in error(feeds)
        assert "none.pem" in error(feeds)


# Kafka -----------------------------------------------------------------------


@pytest.mark.kafka
def test_kafka_with_sasl_and_tls_feeds_a_stream(tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    from tests.kafka_broker import Secure, need_kafka, running
    from tidegate.errors import EnvironmentProblem

    try:
        need_kafka()
    except EnvironmentProblem as exc:
        pytest.skip(f"no Kafka: {exc}")
    authority = Authority(tmp_path / "certificates")
    secure = Secure(authority, "tidegate", "hunter2")
    (tmp_path / "password").write_text("hunter2\n")
    (tmp_path / "wrong").write_text("wrong\n")
    (tmp_path / "kafka").mkdir()
    client = authority.client("tidegate")
    tls = {"ca": str(authority.cert), "cert": str(client.cert), "key": str(client.key)}
    with running(tmp_path / "kafka", secure) as address:
        settings: dict[str, Any] = {"bootstrap.servers": address, **secure.client()}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("fleet", 1, 1)])["fleet"].result(30)
        producer = Producer(settings)
        for number in range(5):
            producer.produce("fleet", json.dumps({"n": number}))
        producer.flush(30)

        def connection(password: str) -> dict[str, Any]:
            sasl = {"mechanism": "SCRAM-SHA-512", "username": "tidegate", "password": f"file:{tmp_path / password}"}
            return {"brokers": address, "sasl": sasl, "tls": tls}

        with fed(tmp_path, "kafka", connection("wrong")) as (feeds, log):
            until(lambda: "SASL authentication error" in error(feeds), "the reason in the feed's status", 60)
            assert events(log, "s") == []
        with fed(tmp_path, "kafka", connection("password")) as (_, log):
            until(lambda: [each["n"] for each in events(log, "s")] == list(range(5)), "the records of the topic", 60)


# What is not the operator's --------------------------------------------------------


@pytest.mark.parametrize("origin", ["remote", "", "Operator", "operator ", None])
def test_import_path_of_any_origin_but_the_operators_is_refused(origin: Any) -> None:
    resources = RunnerResources({"named": "city:named"})
    with pytest.raises(ServiceError, match=r"'os:system' is an import path .* tidegate apply FILE"):
        resources.function("os:system", origin)
    assert resources.function("named", origin) == "city:named"
    assert resources.function("os:system", "operator") == "os:system"
    with pytest.raises(ServiceError, match="no function 'nmed' is registered; did you mean 'named'"):
        resources.function("nmed", "operator")


def test_address_with_a_password_is_not_shown(tmp_path: Path) -> None:
    pytest.importorskip("paho.mqtt.client")
    log = SegmentLog(tmp_path / "log")
    stream = loads("streams: {s: {schema: {n: int64}, source: {mqtt: {topic: t, broker: 'u:hunter2@h:1'}}}}").streams[
        "s"
    ]
    with pytest.raises(SourceError) as caught:
        make_feed(FeedRequest(stream, RawStreamWriter(log, stream, SystemClock()), FeedContext(log), print))
    assert "broker: expected host or host:port, without a user and a password before it" in str(caught.value)
    log.close()


# Hosts of the caller's choice --------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "{mqtt: {topic: t, broker: '127.0.0.1:1', username: u, password_env: PATH}}",
        "{kafka: {topic: t, brokers: 'h:1'}}",
    ],
)
def test_host_that_was_planted_in_the_registry_is_not_reached(tmp_path: Path, source: str) -> None:
    log = SegmentLog(tmp_path / "log")
    planted = remote(f"streams: {{s: {{schema: {{n: int64}}, source: {source}}}}}").streams["s"]
    context = FeedContext(log, env={"PATH": "secret"})
    with pytest.raises(SourceError, match=r"names no host of its own: .*tidegate apply FILE"):
        make_feed(FeedRequest(planted, RawStreamWriter(log, planted, SystemClock()), context, print))
    log.close()
