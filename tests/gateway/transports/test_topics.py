"""Durable subscriptions that deliver to Kafka and MQTT, against real brokers that come and go."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tests.gateway.running import World
from tests.ingress.feeds import mosquitto
from tests.ingress.feeds.mosquitto import Mosquitto
from tests.polling import until
from tidegate.cli.main import app
from tidegate.cli.profile.connections import read_connections
from tidegate.errors import EnvironmentProblem
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.transports.topics import OpenConnection
from tidegate.ingress.connections import KafkaConnection, MqttConnection
from tidegate.services.trust import NamedConnection, Resources
from tidegate.subscriptions import SubscriptionRecord
from tidegate.subscriptions.push_target import BadValue
from tidegate.subscriptions.topics import KafkaTopic, MqttTopic

paho = pytest.importorskip("paho.mqtt.client")
confluent_kafka = pytest.importorskip("confluent_kafka")
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

needs_broker = pytest.mark.skipif(mosquitto.PROGRAM is None, reason=mosquitto.HOW)
OPEN = ("city/*", "alerts*")
HOW_LONG_S = 60


class OpenWorld(World):
    """A gateway whose profile opens connections for subscriptions."""

    def __init__(self, folder: Path, **connections: Any) -> None:
        super().__init__(folder)
        opened = {name: OpenConnection(each, OPEN) for name, each in connections.items()}
        self.durable = replace(self.durable, connections=opened)
        self.resources = Resources(
            connections={n: NamedConnection(each.kind, (), OPEN) for n, each in connections.items()}
        )

    def gateway(self) -> Gateway:
        gateway = super().gateway()
        gateway.resources = self.resources
        return gateway


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    (tmp_path / "mosquitto").mkdir()
    made = Mosquitto(tmp_path / "mosquitto")
    yield made
    made.end()


@contextmanager
def listening(broker: Mosquitto, topic: str) -> Iterator[list[dict[str, Any]]]:
    """The messages of a topic, also of the time when the broker was away."""
    found: list[dict[str, Any]] = []
    ready = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "listener", clean_session=False)
    client.reconnect_delay_set(0.05, 0.1)
    client.on_message = lambda *got: found.append(json.loads(got[-1].payload))
    client.on_connect = lambda *_: client.subscribe(topic, qos=1)
    client.on_subscribe = lambda *_: ready.set()
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    assert ready.wait(20)
    yield found
    client.disconnect()
    client.loop_stop()


def subscribe(http: httpx.Client, deliver: Any, **more: Any) -> httpx.Response:
    return http.post("/v1/services/gps/subscriptions", json={"deliver": deliver, "from": "beginning", **more})


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return [int(event["id"].rpartition(":")[2]) for event in found]


@needs_broker
def test_each_event_comes_to_mqtt_however_often_broker_and_gateway_die(tmp_path: Path, broker: Mosquitto) -> None:
    world = OpenWorld(tmp_path / "world", plant=MqttConnection(broker.address))
    with listening(broker, "city/#") as found:
        with world.running(), world.client() as http:
            world.append(500)
            answer = subscribe(http, {"mqtt": {"connection": "plant", "topic": "city/fast"}})
            assert answer.status_code == 201, answer.text
            shown = {"connection": "plant", "topic": "city/fast", "retain": False, "batch": 100}
            assert answer.json()["deliver"] == {"mqtt": shown}
            listed = CliRunner().invoke(app, ["subscriptions", "list", "--url", world.url], catch_exceptions=False)
            assert "mqtt plant/city/fast" in listed.stdout
            until(lambda: len(found) >= 500, "the first events", HOW_LONG_S)
            broker.end()  # not killed: it would forget the listener
            world.append(300)
            id_ = answer.json()["id"]
            until(lambda: http.get(f"/v1/subscriptions/{id_}").json()["attempts"] > 0, "a failure", HOW_LONG_S)
            broker.start()
            until(lambda: 799 in numbers(found), "events after the broker was away", HOW_LONG_S)
        world.append(200)
        with world.running():
            until(lambda: 999 in numbers(found), "events after the gateway was away", HOW_LONG_S)
    assert sorted(set(numbers(found))) == list(range(1_000))
    firsts = list(dict.fromkeys(numbers(found)))
    assert firsts == sorted(firsts)


@needs_broker
def test_filter_and_retain_apply_to_mqtt(tmp_path: Path, broker: Mosquitto) -> None:
    world = OpenWorld(tmp_path / "world", plant=MqttConnection(broker.address))
    with world.running(), world.client() as http:
        world.append(100)
        target = {"mqtt": {"connection": "plant", "topic": "alerts", "retain": True}}
        answer = subscribe(http, target, filter="speed >= 98", format="plain")
        assert answer.status_code == 201, answer.text

        def retained() -> list[dict[str, Any]]:
            with listening(broker, "alerts") as found:
                until(lambda: bool(found), "a retained message", HOW_LONG_S)
                return found

        until(lambda: retained()[-1]["speed"] == 99.0, "the latest message", HOW_LONG_S)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_each_event_comes_to_kafka_with_its_id_and_key(tmp_path: Path, kafka: str) -> None:
    topic = f"alerts-{secrets.token_hex(4)}"
    create(kafka, NewTopic(topic, 1, 1))
    world = OpenWorld(tmp_path, lake=KafkaConnection(kafka))
    with world.running(), world.client() as http:
        world.append(1_500)
        answer = subscribe(http, {"kafka": {"connection": "lake", "topic": topic, "key": "vid"}})
        assert answer.status_code == 201, answer.text
        found = consumed(kafka, topic, 1_500)
    assert numbers([json.loads(message.value()) for message in found]) == list(range(1_500))
    assert found[7].key() == b"B7"
    assert dict(found[7].headers()) == {"content-type": b"application/cloudevents+json", "id": b"gps_taxi:0:7"}
    world.append(10)
    with world.running():  # it continues after the last event that was confirmed
        again = consumed(kafka, topic, 1_510)
    assert sorted(set(numbers([json.loads(message.value()) for message in again]))) == list(range(1_510))


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_event_that_kafka_will_never_take_is_a_dead_letter(tmp_path: Path, kafka: str) -> None:
    topic = f"alerts-{secrets.token_hex(4)}"
    create(kafka, NewTopic(topic, 1, 1, config={"max.message.bytes": "2000"}))
    world = OpenWorld(tmp_path, lake=KafkaConnection(kafka))
    with world.running(), world.client() as http:
        id_ = subscribe(http, {"kafka": {"connection": "lake", "topic": topic, "batch": 1}}).json()["id"]
        long = {"_id": "x:0:1", "_time": "2026-01-01T00:00:00Z", "vid": "B" * 5_000, "speed": 1.0}
        world.log.append("gps", "gps_taxi.0", [json.dumps(long).encode()])
        world.append(1)
        assert numbers([json.loads(message.value()) for message in consumed(kafka, topic, 1)]) == [0]
        letters = http.get(f"/v1/subscriptions/{id_}/dead-letters").json()["dead_letters"]
        assert [letter["event"]["id"] for letter in letters] == ["x:0:1"]
        assert letters[0]["error"].startswith("Kafka: ")
        redelivered = http.post(f"/v1/subscriptions/{id_}/dead-letters/redeliver", json={"ids": "all"}).json()
        assert [failed["id"] for failed in redelivered["failed"]] == [letters[0]["id"]]


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_kafka_topic_must_exist(tmp_path: Path, kafka: str) -> None:
    world = OpenWorld(tmp_path, lake=KafkaConnection(kafka))
    with world.running(), world.client() as http:
        answer = subscribe(http, {"kafka": {"connection": "lake", "topic": "alerts-nowhere"}})
        assert answer.status_code == 422
        assert "topic 'alerts-nowhere' of 'lake': " in answer.json()["detail"]


def create(kafka: str, topic: Any) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([topic])[topic.topic].result(30)


def consumed(kafka: str, topic: str, count: int) -> list[Any]:
    """Return the records of a topic from its start, as soon as there are `count` of them."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka, "group.id": secrets.token_hex(4)})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Any] = []

    def has_all() -> bool:
        found.extend(consumer.consume(1_000, 0.2))
        return len(found) >= count

    try:
        until(has_all, "records", HOW_LONG_S)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(
    ("deliver", "pointer", "message"),
    [
        (
            {"mqtt": {"connection": "other", "topic": "alerts"}},
            ".mqtt.connection",
            "no mqtt connection 'other'",
        ),
        ({"kafka": {"connection": "plant", "topic": "alerts"}}, ".kafka.connection", "no kafka connection 'plant'"),
        ({"mqtt": {"connection": "plant", "topic": "fleet/raw"}}, ".mqtt.topic", "'plant' is not open for 'fleet/raw'"),
        ({"mqtt": {"connection": "plant", "topic": "alerts/#"}}, ".mqtt.topic", "a topic without wildcards"),
        ({"mqtt": {"connection": "plant", "topic": "$SYS/x"}}, ".mqtt.topic", "a topic without wildcards"),
        ({"mqtt": {"connection": "plant"}}, ".mqtt.topic", "a topic without wildcards"),
        ({"mqtt": {"connection": "plant", "topic": "alerts", "retain": 1}}, ".mqtt.retain", "true or false"),
        ({"mqtt": {"connection": "plant", "topic": "alerts", "batch": 0}}, ".mqtt.batch", "from 1 to 1,000"),
        ({"mqtt": {"connection": "plant", "topic": "alerts", "qos": 2}}, ".mqtt.qos", "unknown field 'qos'"),
        ({"mqtt": "alerts"}, ".mqtt", "expected an object with a connection and a topic"),
        ({"kafka": {"connection": 7, "topic": "t"}}, ".kafka.connection", "the name of a connection"),
        ({"kafka": {"connection": "plant", "topic": "a b"}}, ".kafka.topic", "expected the name of a topic"),
        ({"kafka": {"connection": "plant", "topic": ".."}}, ".kafka.topic", "expected the name of a topic"),
        ({"kafka": {"connection": "plant", "topic": "t", "key": ""}}, ".kafka.key", "the name of an attribute"),
        ({"mqtt": {"connection": "plant", "topic": "alerts"}}, ".mqtt.topic", "can't reach the MQTT broker"),
    ],
)
def test_targets_that_can_not_be_used_are_refused(shut: httpx.Client, deliver: Any, pointer: str, message: str) -> None:
    answer = subscribe(shut, deliver)
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["pointer"] == f"deliver{pointer}"
    assert message in error["detail"]


@pytest.fixture(scope="module")
def shut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A gateway whose only broker does not answer."""
    world = OpenWorld(tmp_path_factory.mktemp("shut"), plant=MqttConnection("127.0.0.1:1"))
    with world.running(), world.client() as http:
        yield http


def test_topics_are_described_without_address_for_others() -> None:
    for target in (KafkaTopic("lake", "alerts", "vid"), MqttTopic("plant", "alerts")):
        assert "alerts" not in str(target.describe(show_address=False))
        assert type(target).parse({"batch": 5}, target) == replace(target, batch=5)
        with pytest.raises(BadValue):
            type(target).parse({}, None)
        assert SubscriptionRecord("s", "gps", deliver=target).push_target == target


def test_profile_opens_topics(tmp_path: Path) -> None:
    path = str(tmp_path / "profile.yaml")
    entry = {"mqtt": {"broker": "b:1883"}, "push": ["alerts", "city/*"]}
    assert read_connections({"plant": entry}, path)["plant"].push == ("alerts", "city/*")
    for document, message in (
        ({"mqtt": {"broker": "b"}, "push": "alerts"}, "push: expected a list of topics, such as"),
        ({"jdbc": {"url": "jdbc:x", "driver": "d"}, "push": ["t"]}, "push: expected none: subscriptions deliver to"),
    ):
        with pytest.raises(EnvironmentProblem, match=message):
            read_connections({"plant": document}, path)
