"""The bridge from MQTT, against a real broker that comes and goes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.ingress.feeds import mosquitto
from tests.ingress.feeds.mosquitto import Mosquitto
from tests.ingress.kit import events, until
from tests.ports import free_port
from tidegate.cli.main import app
from tidegate.errors import SourceError
from tidegate.ingress.feeds import Feeds, start_feeds
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services import load
from tidegate.services.definitions import Definitions, Mqtt, Stream
from tidegate.timing import Backoff

paho = pytest.importorskip("paho.mqtt.client")
from tidegate.ingress.feeds.mqtt import MqttFeed  # noqa: E402

SCHEMA = Schema({"n": "int64", "time": "timestamp?"}, event_time="time")
WITH_TOPIC = Schema({"n": "int64", "topic": "string", "time": "timestamp?"}, event_time="time")
QUICK = Backoff(first_s=0.05, max_s=0.1)

needs_broker = pytest.mark.skipif(mosquitto.PROGRAM is None, reason=mosquitto.HOW)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    made = SegmentLog(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    (tmp_path / "mosquitto").mkdir()
    made = Mosquitto(tmp_path / "mosquitto")
    yield made
    made.end()


@contextmanager
def publisher(broker: Mosquitto) -> Iterator[Any]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "publisher", clean_session=False)
    client.reconnect_delay_set(0.05, 0.1)
    client.max_inflight_messages_set(1_000)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


def publish(client: Any, topic: str, *payloads: Any) -> None:
    """Send, and wait until the broker has all."""
    sent = [client.publish(topic, p if isinstance(p, bytes) else json.dumps(p), qos=1) for p in payloads]
    for each in sent:
        each.wait_for_publish(20)
        assert each.is_published()


def feeding(log: SegmentLog, broker: Mosquitto, topic: str = "fleet/+/gps", schema: Schema = SCHEMA) -> Feeds:
    stream = Stream("s", schema, source=Mqtt(topic, broker.address))
    return start_feeds(Definitions({"s": stream}), log, backoff=QUICK)


def heard(log: SegmentLog, client: Any, topic: str = "fleet/1/gps", payload: Any = None) -> None:
    """Send what counts for nothing until the feed has some of it: it listens."""
    until(lambda: "s" in log.streams())
    before = len(events(log, "s"))

    def is_heard() -> bool:
        publish(client, topic, payload or {"n": -1})
        return len(events(log, "s")) > before

    until(is_heard)


def subscribed(log: SegmentLog, broker: Mosquitto, topic: str = "fleet/+/gps", schema: Schema = SCHEMA) -> None:
    """Make the feed's session, and leave."""
    with feeding(log, broker, topic, schema), publisher(broker) as client:
        heard(log, client)


def counted(log: SegmentLog) -> list[dict[str, Any]]:
    return [event for event in events(log, "s") if event.get("n") != -1]


def numbers(log: SegmentLog) -> list[int]:
    return [event["n"] for event in counted(log)]


@needs_broker
def test_rows_of_csv_become_events_with_their_topic(log: SegmentLog, broker: Mosquitto) -> None:
    source = Mqtt("fleet/+/gps", broker.address, format="csv", columns=("n", "time"), times=(("*", "epoch_ms"),))
    stream = Stream("s", WITH_TOPIC, source=source)
    with start_feeds(Definitions({"s": stream}), log, backoff=QUICK), publisher(broker) as client:
        heard(log, client, payload=b"-1,")
        publish(client, "fleet/7/gps", b"1,1000\n2,2000\n", b"3,soon")
        until(lambda: len(counted(log)) == 2)
        until(lambda: bool(events(log, "s.quarantine")))
    assert counted(log) == [{"topic": "fleet/7/gps", "n": n, "time": f"1970-01-01T00:00:0{n}.000000Z"} for n in (1, 2)]
    (refused,) = events(log, "s.quarantine")
    assert refused["_reason"] == "time: expected a number of epoch_ms, not 'soon'"


@needs_broker
def test_topic_becomes_a_service_file(broker: Mosquitto, tmp_path: Path) -> None:
    with publisher(broker) as client:
        for n in range(3):  # retained: the broker sends them to whoever subscribes
            client.publish(f"fleet/{n}/gps", b'{"n":%d}' % n, qos=1, retain=True).wait_for_publish(20)
    output = tmp_path / "gps.yaml"
    arguments = ["init", "mqtt:fleet/+/gps", "--broker", broker.address, "--events", "3", "-o", str(output)]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    (stream,) = load(output).streams.values()
    assert (stream.name, stream.source) == ("fleet-gps", Mqtt("fleet/+/gps", broker.address))
    assert stream.schema == Schema({"n": "int64"})
    tried = CliRunner().invoke(app, ["validate", "--sources", "--wait", "2s", str(output)], catch_exceptions=False)
    assert tried.stdout.splitlines()[-1] == "source of fleet-gps: 3 events read"


@needs_broker
def test_objects_and_arrays_of_objects_become_events(log: SegmentLog, broker: Mosquitto) -> None:
    subscribed(log, broker)
    with feeding(log, broker), publisher(broker) as client:
        publish(client, "fleet/7/gps", {"n": 1}, [{"n": 2, "_id": "own"}, {"n": 3}], [])
        publish(client, "fleet/7/other", {"n": 99})
        publish(client, "fleet/7/gps", b"{no", b"\xff", [{"n": 4}, 5], {"n": 12345678901234567890123})
        until(lambda: len(numbers(log)) == 5)
    assert numbers(log) == [1, 2, 3, 4, 12345678901234567890123]
    assert counted(log)[1]["_id"] == "own"
    assert [each.get("_raw", each.get("_raw64")) for each in events(log, "s.quarantine")] == ["{no", "/w==", "5"]


@needs_broker
def test_topic_is_an_attribute_if_the_schema_has_it(log: SegmentLog, broker: Mosquitto) -> None:
    subscribed(log, broker, "fleet/#", WITH_TOPIC)
    with feeding(log, broker, "fleet/#", WITH_TOPIC), publisher(broker) as client:
        publish(client, "fleet/a", {"n": 1})
        publish(client, "fleet/b/c", {"n": 2, "topic": "mine"}, [{"n": 3}, {}], b"{}")
        until(lambda: len(counted(log)) == 5)
    assert [(event.get("n"), event["topic"]) for event in counted(log)] == [
        (1, "fleet/a"),
        (2, "mine"),
        (3, "fleet/b/c"),
        (None, "fleet/b/c"),
        (None, "fleet/b/c"),
    ]


@needs_broker
def test_messages_sent_while_the_feed_is_away_arrive_later(log: SegmentLog, broker: Mosquitto) -> None:
    subscribed(log, broker)
    with publisher(broker) as client:
        publish(client, "fleet/1/gps", *({"n": n} for n in range(3_000)))
    with feeding(log, broker):
        until(lambda: len(numbers(log)) >= 3_000)
    assert numbers(log) == list(range(3_000))


@needs_broker
def test_retained_message_is_appended_once(log: SegmentLog, broker: Mosquitto) -> None:
    with publisher(broker) as client:
        client.publish("fleet/1/gps", '{"n":1}', qos=1, retain=True).wait_for_publish(20)
        for n in (2, 3, 4):
            with feeding(log, broker):
                until(lambda: len(numbers(log)) > 0)
                publish(client, "fleet/1/gps", {"n": n})
                until(lambda n=n: numbers(log)[-1] == n)  # type: ignore[misc]
    assert numbers(log) == [1, 2, 3, 4]


@needs_broker
def test_restarted_broker_loses_no_acknowledged_message(log: SegmentLog, broker: Mosquitto) -> None:
    subscribed(log, broker)
    with feeding(log, broker) as feeds, publisher(broker) as client:
        sent = [client.publish("fleet/1/gps", json.dumps({"n": n}), qos=1) for n in range(4_000)]
        until(lambda: len(numbers(log)) > 200)
        broker.end()
        until(lambda: feeds.status()["s"]["error"] is not None)
        broker.start()
        for each in sent:
            each.wait_for_publish(20)
        until(lambda: set(numbers(log)) == set(range(4_000)))
        assert feeds.status()["s"]["restarts"] >= 1


@needs_broker
def test_feed_reconnects_to_a_killed_broker(log: SegmentLog, broker: Mosquitto) -> None:
    with feeding(log, broker) as feeds:
        for numbered in (range(500), range(500, 1_000)):
            with publisher(broker) as client:
                heard(log, client)  # a broker that was killed has forgotten the session
                publish(client, "fleet/1/gps", *({"n": n} for n in numbered))
                until(lambda end=numbered.stop: set(numbers(log)) == set(range(end)))  # type: ignore[misc]
            broker.end(signal.SIGKILL)
            until(lambda: feeds.status()["s"]["state"] == "waiting")
            assert "MQTT broker" in feeds.status()["s"]["error"]
            broker.start()


KILLED = """
import os, signal, sys
from pathlib import Path
from threading import Event
from tests.ingress.feeds.test_mqtt import SCHEMA
from tidegate.logs import SegmentLog
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.ingress.feeds.mqtt import MqttFeed
from tidegate.services.definitions import Mqtt, Stream

class Deadly(SegmentLog):
    def append(self, stream, partition, records):
        super().append(stream, partition, records)
        os.kill(os.getpid(), signal.SIGKILL)

log = Deadly(Path(sys.argv[1]))
stream = Stream("s", SCHEMA, source=Mqtt("fleet/+/gps", sys.argv[2]))
MqttFeed(stream.source, RawStreamWriter(log, stream)).run(Event())
"""


@needs_broker
def test_feed_killed_before_the_acknowledgement_appends_duplicates_at_most(
    log: SegmentLog, broker: Mosquitto, tmp_path: Path
) -> None:
    subscribed(log, broker)
    before = len(events(log, "s"))
    log.close()
    with publisher(broker) as client:
        publish(client, "fleet/1/gps", *({"n": n, "_id": f"p{n}"} for n in range(50)))
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "log"), broker.address], check=False)
        assert killed.returncode == -signal.SIGKILL
    again = SegmentLog(tmp_path / "log")
    written = len(numbers(again))
    assert len(events(again, "s")) >= before + 2, "each had something in the log"
    with feeding(again, broker):
        until(lambda: len(numbers(again)) >= written + 50)
    assert len(numbers(again)) == written + 50, "nothing had been acknowledged"
    by_id: dict[str, set[int]] = {}
    for event in counted(again):
        by_id.setdefault(event["_id"], set()).add(event["n"])
    assert by_id == {f"p{n}": {n} for n in range(50)}
    again.close()


@needs_broker
def test_failed_append_acknowledges_nothing(
    log: SegmentLog, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(log, broker)
    append, failures = log.append, [OSError("disk full")] * 3

    def shaky(stream: str, partition: str, records: list[bytes]) -> int:
        if failures:
            raise failures.pop()
        return append(stream, partition, records)

    monkeypatch.setattr(log, "append", shaky)
    with feeding(log, broker) as feeds, publisher(broker) as client:
        publish(client, "fleet/1/gps", *({"n": n} for n in range(100)))
        until(lambda: len(numbers(log)) >= 100)
        assert feeds.status()["s"]["error"] == "OSError: disk full"
    assert numbers(log) == list(range(100))


def test_broker_without_mqtt_5_gets_mqtt_3(log: SegmentLog) -> None:
    """A broker of our own that knows 3.1.1 only, and has a session with a message for us."""
    told: list[str] = []
    versions: list[int] = []
    acknowledged: list[bytes] = []
    stop = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def old_broker() -> None:
            for answer in (b"\x20\x02\x00\x01", b"\x20\x02\x01\x00"):
                connection, _ = server.accept()
                with connection:
                    hello = connection.recv(4_096)
                    versions.append(hello[hello.index(b"MQTT") + 4])
                    connection.sendall(answer)
                    if answer.endswith(b"\x00"):
                        payload = b'\x00\x01t\x00\x07{"n":1}'
                        connection.sendall(b"\x32" + bytes([len(payload)]) + payload)
                        acknowledged.append(connection.recv(4))
                        stop.set()
                        connection.recv(64)  # its goodbye: whoever hangs up first has lost the other

        thread = Thread(target=old_broker)
        thread.start()
        source = Mqtt("t", f"127.0.0.1:{server.getsockname()[1]}")
        MqttFeed(source, RawStreamWriter(log, Stream("s", SCHEMA)), report=told.append).run(stop)
        thread.join()
    assert versions == [5, 4]
    assert events(log, "s") == [{"n": 1}]
    assert acknowledged == [b"\x40\x02\x00\x07"]
    assert "no MQTT 5" in told[0]


def test_client_id_is_unique_per_log_stream_and_topic(log: SegmentLog) -> None:
    writer = RawStreamWriter(log, Stream("s", SCHEMA))
    ids = [MqttFeed(Mqtt(topic), writer).client_id for topic in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]
    log.delete("s")
    assert MqttFeed(Mqtt("a"), RawStreamWriter(log, Stream("s", SCHEMA))).client_id != ids[0]


def test_unreachable_broker_is_an_error(log: SegmentLog) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceError, match=f"can't reach the MQTT broker {address}: "):
        MqttFeed(Mqtt("a", address), RawStreamWriter(log, Stream("s", SCHEMA))).run(Event())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Mqtt(""), "topic: expected one such as fleet/+/gps or fleet/#, not ''"),
        (Mqtt("a/#/b"), "topic: expected"),
        (Mqtt("a/b#"), "topic: expected"),
        (Mqtt("a/b+/c"), "topic: expected"),
        (Mqtt("a", "host:port"), "broker: expected host or host:port, not 'host:port'"),
        (Mqtt("a", "mqtts://host"), "broker: expected host or host:port"),
        (Mqtt("a", password_env="SECRET"), "password_env: the environment has no SECRET"),
    ],
)
def test_bad_source_is_refused(log: SegmentLog, source: Mqtt, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        MqttFeed(source, RawStreamWriter(log, Stream("s", SCHEMA)))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("broker", "address"), [("host", ("host", 1883)), ("h:7", ("h", 7)), ("[::1]:8", ("::1", 8))])
def test_address_may_omit_the_port(log: SegmentLog, broker: str, address: tuple[str, int]) -> None:
    feed = MqttFeed(Mqtt("a", broker), RawStreamWriter(log, Stream("s", SCHEMA)))
    assert (feed.host, feed.port) == address
