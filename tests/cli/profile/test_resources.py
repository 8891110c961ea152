"""Functions, roots and connections of a profile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegate.cli.data_folder.home import Home
from tidegate.cli.profile import Profile, load_profile
from tidegate.cli.profile.functions import registered_functions
from tidegate.errors import EnvironmentProblem, SourceError
from tidegate.ingress.connections import KafkaConnection, MqttConnection
from tidegate.logs.kafka_security import Tls
from tidegate.pipelines.resources import JdbcConnection

DOCUMENT = Path(__file__).parents[3] / "docs" / "spec" / "trust.md"
MQTT = "connections: {plant: {mqtt: {broker: 'h:1883', %s}}}"
KAFKA = "connections: {trips: {kafka: {brokers: 'h:9092', %s}}}"


def loaded(folder: Path, text: str) -> Profile:
    path = folder / "p.yaml"
    path.write_text(text)
    return load_profile(str(path))


def test_profile_of_the_document_is_read_and_shows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```yaml\n(# profile.yaml.*?)```", DOCUMENT.read_text(), re.DOTALL)
    monkeypatch.setenv("PLANT_PASSWORD", "hush")
    monkeypatch.setenv("DB_PASSWORD", "hush")
    (tmp_path / "kafka.password").write_text("hush\n")
    for name, kind in (("ca.pem", "CERTIFICATE"), ("client.pem", "CERTIFICATE"), ("client.key", "PRIVATE KEY")):
        (tmp_path / name).write_text(f"-----BEGIN {kind}-----")
    profile = loaded(tmp_path, text)
    assert profile.functions == {"speedup": "city.functions:speedup"}
    assert [(str(root.path), root.audience) for root in profile.roots] == [
        ("/srv/sensors", ()),
        ("/srv/fleet", ("fleet", "role:provider")),
    ]
    plant, trips, warehouse = (profile.connections[name].connection for name in ("plant", "trips", "warehouse"))
    assert isinstance(plant, MqttConnection)
    assert plant.tls == Tls(str(tmp_path / "ca.pem"))
    assert isinstance(trips, KafkaConnection)
    assert trips.security.settings()["sasl.password"] == "hush"
    assert trips.security.settings()["security.protocol"] == "sasl_ssl"
    assert isinstance(warehouse, JdbcConnection)
    assert warehouse.options() == {
        "url": "jdbc:postgresql://db/city",
        "driver": "org.postgresql.Driver",
        "user": "reader",
        "password": "hush",
    }
    assert profile.connections["plant"].audience == ("fleet",)
    assert "hush" not in repr(profile)
    resources = Home(tmp_path / "data", profile).resources()
    assert "mqtt.internal" not in repr(resources), "the gateway knows names, neither hosts nor secrets"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("functions: [a]", "functions: expected a map such as {speedup: 'city.functions:speedup'}"),
        (
            "functions: {1: 'a:b'}",
            "functions: expected a name of letters, digits, _ . and -, the first a letter, not 1",
        ),
        ("functions: {'a:b': 'a:b'}", "functions: expected a name of letters"),
        ("functions: {f: os.system}", "functions.f: expected module:function, not 'os.system'"),
        ("functions: {f: [a]}", "functions.f: expected module:function, not ['a']"),
        ("roots: /srv", "roots: expected a list of folders, such as [/srv/sensors], not '/srv'"),
        ("roots: [7]", "roots[0]: expected a folder, or {path: FOLDER, for: [NAME, role:NAME]}"),
        ("roots: [{path: /srv, fro: [a]}]", "roots[0]: expected a folder, or {path: FOLDER, for: [NAME, role:NAME]}"),
        ("roots: [/srv/../]", "roots[0]: expected a folder for data, not '/', which contains every file"),
        ("roots: [{path: /srv, for: []}]", "roots[0].for: expected names of keys, subjects of tokens, or role:NAME"),
        ("connections: [a]", "connections: expected connections by name, such as {plant: {mqtt: {...}}}"),
        ("connections: {'a b': {}}", "connections: expected a name of letters, digits, _ . and -"),
        ("connections: {a: 7}", "connections.a: expected a map with jdbc, mqtt, kafka, poll, for"),
        ("connections: {a: {mqt: {}}}", "connections.a: unknown key 'mqt'; did you mean 'mqtt'?"),
        (
            "connections: {a: {for: [b]}}",
            "connections.a: expected one of jdbc, mqtt, kafka, poll, as in {mqtt: {broker: ...}}",
        ),
        (
            "connections: {a: {mqtt: {broker: h}, kafka: {brokers: h}}}",
            "connections.a: expected one of jdbc, mqtt, kafka",
        ),
        ("connections: {a: {mqtt: {}}}", "connections.a.mqtt.broker: expected host or host:port"),
        ("connections: {a: {mqtt: {broker: 'u:hush@h'}}}", "connections.a.mqtt.broker: expected no password in it"),
        (MQTT % "password: 'env:A'", "connections.plant.mqtt.password: expected a username too"),
        (MQTT % "username: u, password: hush", "connections.plant.mqtt.password: expected"),
        (MQTT % "tls: {ca: 7}", "connections.plant.mqtt.tls.ca: expected the path of a PEM file, not 7"),
        (MQTT % "tls: {cert: a}", "connections.plant.mqtt.tls: expected cert and key together"),
        (MQTT % "tls: {insecure: true}", "connections.plant.mqtt.tls: unknown key 'insecure'; expected ca, cert, key"),
        ("connections: {a: {kafka: {}}}", "connections.a.kafka.brokers: expected host:port, or several with commas"),
        (
            KAFKA % "sasl: {mechanism: OAUTHBEARER}",
            "kafka.sasl.mechanism: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, not 'OAUTHBEARER'",
        ),
        (KAFKA % "sasl: {mechanism: PLAIN, username: u}", "connections.trips.kafka.sasl.password: expected"),
        (KAFKA % "sasl: {mechanism: PLAIN, password: 'env:A'}", "kafka.sasl.username: expected the name of a user"),
        ("connections: {a: {jdbc: {driver: d}}}", "jdbc.url: expected a URL such as jdbc:postgresql://db/city"),
        ("connections: {a: {jdbc: {url: 'postgresql://db'}}}", "jdbc.url: expected a URL that begins with jdbc:, not"),
        ("connections: {a: {jdbc: {url: 'jdbc:x://db'}}}", "jdbc.driver: expected the class of a JDBC driver, such as"),
        (
            "connections: {a: {jdbc: {url: 'jdbc:x://db?password=hush', driver: d}}}",
            "connections.a.jdbc.url: expected no password in it: put it under password, as env:NAME or file:PATH",
        ),
    ],
)
def test_invalid_resources_are_refused_without_secrets(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        loaded(tmp_path, text)
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_relative_paths_are_relative_to_the_profile(tmp_path: Path) -> None:
    profile = loaded(tmp_path, "roots: [data]\nconnections: {a: {mqtt: {broker: h, tls: true}}}")
    assert [root.path for root in profile.roots] == [tmp_path / "data"]
    connection = profile.connections["a"].connection
    assert isinstance(connection, MqttConnection)
    assert connection.tls == Tls()


def test_root_opens_neither_the_profile_nor_files_with_secrets(tmp_path: Path) -> None:
    text = """
roots: [.]
tls: {cert: server.pem, key: server.key}
registry: {url: 'postgresql://me@head/db', password: {file: registry.password}}
connections:
  a: {mqtt: {broker: h, username: u, password: "file:mqtt.password", tls: {ca: ca.pem, cert: c.pem, key: mqtt.key}}}
  b: {kafka: {brokers: h, sasl: {mechanism: PLAIN, username: u, password: "file:in/../kafka.password"}}}
"""
    home = Home(tmp_path / "data", loaded(tmp_path, text))
    private = ("p.yaml", "server.key", "registry.password", "mqtt.password", "mqtt.key", "kafka.password")
    for name in (*private, "sensors.csv"):
        (tmp_path / name).touch()
    (tmp_path / "alias.csv").symlink_to(tmp_path / "mqtt.key")
    allowed = home.resources().allowed(True, lambda _: True)
    for files in (allowed.files, home.runner_resources().files):
        for name in (*private, "alias.csv", "data/mask.key"):
            assert files.problem(str(tmp_path / name)) is not None, name
            with pytest.raises(SourceError):
                files.opener(str(tmp_path / "*"))(tmp_path / name)
        assert files.problem(str(tmp_path / "sensors.csv")) is None


def test_function_of_the_profile_comes_before_one_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "city-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: city\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[tidegate.functions]\nspeedup = not_there:f [extra]\nslow = not_there:g\n"
        "bad:name = not_there:h\nmodule = not_there\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registered_functions({"slow": "mine:slow"}) == {"speedup": "not_there:f", "slow": "mine:slow"}
