"""TLS of the gateway's own socket: what strangers can't read, what clients must verify, and files that change."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.certificates import EXPIRED, Authority, Issued
from tests.pipelines.running import until
from tests.security import processes
from tests.security.processes import Running
from tidegate import Client
from tidegate.cli.data_folder.home import Home
from tidegate.cli.processes.gateway_server import server_tls
from tidegate.cli.profile import load_profile
from tidegate.client.tls import client_context
from tidegate.errors import ClientError, EnvironmentProblem
from tidegate.registry import SqliteRegistry
from tidegate.services import loads

pytestmark = pytest.mark.processes

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
  readings: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
services:
  gps: {from: gps_taxi, access: {to: [fleet, watcher]}}
"""
EVENT = {"vid": "B1", "speed": 12.5, "time": "2026-01-01T00:00:00Z"}


def prepared(data: Path) -> Path:
    """Make a data folder with the services of the city."""
    data.mkdir(parents=True, exist_ok=True)
    registry = SqliteRegistry(data / "registry.sqlite")
    registry.apply(loads(CITY))
    registry.close()
    return data


def contexts(ca: Path, issued: Issued | None = None) -> ssl.SSLContext:
    return client_context(ca, None if issued is None else issued.pair)


def started(folder: Path, **settings: Any) -> None:
    """Load the TLS files and certificates of a profile, as a gateway does when it starts."""
    server_tls(Home(folder / "data", load_profile(str(processes.write_profile(folder, **settings)))))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def secure(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    """A gateway with TLS, keys required, and a provider's key."""
    folder = tmp_path_factory.mktemp("tls")
    data = prepared(folder / "data")
    key = processes.create_key(data, "fleet", "provider")
    server = authority.server()
    for name in ("cert", "key"):
        shutil.copy(getattr(server, name), folder / f"gateway.{name}")
    profile = processes.write_profile(folder, tls={"cert": "gateway.cert", "key": "gateway.key"})
    with processes.gateway(data, "--profile", profile) as running:
        yield running, key


def test_gateway_speaks_tls_only(secure: tuple[Running, str], authority: Authority) -> None:
    running, key = secure
    assert running.url.startswith("https://127.0.0.1:")
    headers = {"authorization": f"Bearer {key}"}
    with pytest.raises(httpx.TransportError):
        httpx.get(running.url.replace("https", "http") + "/v1/services", headers=headers)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(running.url + "/livez")
    answer = httpx.get(running.url + "/v1/services", headers=headers, verify=contexts(authority.cert))
    assert [each["name"] for each in answer.json()["services"]] == ["gps"]


def test_old_protocols_and_weak_ciphers_are_refused(secure: tuple[Running, str], authority: Authority) -> None:
    def negotiated(**limits: Any) -> tuple[str | None, str | None]:
        context = contexts(authority.cert)
        context.set_alpn_protocols(["h2", "http/1.1"])
        if "ciphers" in limits:
            context.set_ciphers(limits["ciphers"])
        context.minimum_version = limits.get("least", ssl.TLSVersion.TLSv1_2)
        context.maximum_version = limits.get("most", ssl.TLSVersion.MAXIMUM_SUPPORTED)
        host, port = secure[0].url.removeprefix("https://").split(":")
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            return wrapped.version(), wrapped.selected_alpn_protocol()

    assert negotiated() == ("TLSv1.3", "http/1.1")
    assert negotiated(most=ssl.TLSVersion.TLSv1_2) == ("TLSv1.2", "http/1.1")
    with pytest.warns(DeprecationWarning, match="TLSv1"), pytest.raises((ssl.SSLError, OSError)):
        negotiated(least=ssl.TLSVersion.TLSv1, most=ssl.TLSVersion.TLSv1_1, ciphers="ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, OSError)):  # no forward secrecy
        negotiated(most=ssl.TLSVersion.TLSv1_2, ciphers="AES128-SHA:AES128-GCM-SHA256:@SECLEVEL=0")


def test_events_are_sent_and_received_over_tls(secure: tuple[Running, str], authority: Authority) -> None:
    running, key = secure
    with Client(running.url, key=key, verify=authority.cert) as client:
        assert client.publish("readings", [{**EVENT, "_id": "1"}]).accepted == 1
        assert client.events("gps").events == ()
        with client.subscribe("gps", since="now") as subscription:
            assert subscription.cursor is None or subscription.cursor
    socket_url = running.url.replace("https", "wss") + "/v1/events"
    headers = {"authorization": f"Bearer {key}"}
    with connect(socket_url, ssl=contexts(authority.cert), additional_headers=headers) as websocket:
        websocket.send(json.dumps({"type": "subscribe", "id": "a", "service": "gps"}))
        assert json.loads(websocket.recv(timeout=10))["id"] == "a"


def test_command_line_verifies_the_gateway(secure: tuple[Running, str], authority: Authority, tmp_path: Path) -> None:
    running, key = secure
    asked = ("services", "--url", running.url, "--key", key, "--json")
    untrusted = processes.tidegate(*asked, data=tmp_path)
    assert untrusted.returncode == 2
    assert "shows a certificate that is not trusted" in untrusted.stderr
    assert "--ca PATH or TIDEGATE_CA" in untrusted.stderr
    trusted = processes.tidegate(*asked, "--ca", authority.cert, data=tmp_path)
    assert trusted.returncode == 0, trusted.stderr
    assert json.loads(trusted.stdout)[0]["service"] == "gps"
    missing = processes.tidegate(*asked, "--ca", tmp_path / "none.pem", data=tmp_path)
    assert "can't read the authorities in" in missing.stderr
    alone = processes.tidegate(*asked, "--cert-key", authority.cert, data=tmp_path)
    assert "--cert-key: expected --cert too" in alone.stderr


def test_client_names_files_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    one, other = authority.client("one"), authority.client("other")
    for verify, cert, said in (
        (tmp_path / "none.pem", None, "can't read the authorities"),
        (tmp_path / "empty.pem", None, "holds no certificate of an authority in PEM"),
        (True, (one.cert, other.key), "key values mismatch"),
        (True, tmp_path / "none.pem", "can't read"),
    ):
        with pytest.raises(ClientError, match=said):
            Client("https://127.0.0.1:1", verify=verify, cert=cert)


def test_endless_handshake_is_aborted(secure: tuple[Running, str]) -> None:
    host, port = secure[0].url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as silent:
        assert silent.recv(1) == b"", "the server lets a silent stranger hold a connection"


def serial_of(url: str, ca: Path) -> int:
    host, port = url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        contexts(ca).wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        found: Any = wrapped.getpeercert()
        return int(found["serialNumber"], 16)


def test_reloaded_certificate_is_used_and_connections_stay(authority: Authority, tmp_path: Path) -> None:
    data, first, second = prepared(tmp_path / "data"), authority.server("first"), authority.server("second")
    cert, key = tmp_path / "gateway.cert", tmp_path / "gateway.key"
    shutil.copy(first.cert, cert)
    shutil.copy(first.key, key)
    with (
        processes.gateway(data, "--tls-cert", cert, "--tls-key", key) as running,
        httpx.Client(base_url=running.url, verify=contexts(authority.cert), timeout=30) as old,
        old.stream("GET", "/v1/services/gps/events", headers={"accept": "text/event-stream"}) as stream,
    ):
        assert stream.status_code == 200
        expires = re.search(r"^tidegate_tls_certificate_expires_seconds (\S+)", old.get("/metrics").text, re.MULTILINE)
        assert expires is not None
        assert float(expires[1]) == first.certificate.not_valid_after_utc.timestamp()

        shutil.copy(second.cert, cert)  # without its key: they do not fit
        until(lambda: "is not the key of the certificate" in running.output.read_text(), "the broken pair to be seen")
        assert serial_of(running.url, authority.cert) == first.certificate.serial_number
        assert "tidegate_tls_reload_failures_total 1.0" in old.get("/metrics").text

        shutil.copy(second.key, key)
        until(
            lambda: serial_of(running.url, authority.cert) == second.certificate.serial_number,
            "the new certificate to be shown",
        )
        assert "PRIVATE" not in running.output.read_text()
        assert running.process.poll() is None
        assert next(stream.iter_bytes()).startswith(b"retry")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("missing", "tls.cert: can't read"),
        ("no certificate", "holds no certificate in PEM"),
        ("mismatch", "is not the key of the certificate in"),
        ("expired", "expired at"),
        ("key missing", "tls.key: can't read"),
        ("encrypted", "is encrypted; write it without a passphrase"),
        ("no authority", "tls.client_ca: "),
        ("no list", "tls.crl: .* holds no revocation list in PEM"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_start(
    authority: Authority, tmp_path: Path, broken: str, said: str
) -> None:
    server, other = authority.server(), authority.server("other")
    text = tmp_path / "text.pem"
    text.write_text("no PEM at all")
    files: dict[str, Any] = {"cert": str(server.cert), "key": str(server.key)}
    match broken:
        case "missing":
            files["cert"] = "none.pem"
        case "no certificate":
            files["cert"] = str(text)
        case "mismatch":
            files["key"] = str(other.key)
        case "expired":
            old = authority.server("old", ends=EXPIRED)
            files = {"cert": str(old.cert), "key": str(old.key)}
        case "key missing":
            files["key"] = "none.key"
        case "encrypted":
            files["key"] = str(_encrypted(server, tmp_path))
        case "no authority":
            files["client_ca"] = str(text)
        case "no list":
            files |= {"client_ca": str(authority.cert), "crl": str(text)}
    with pytest.raises(EnvironmentProblem, match=said):
        started(tmp_path, tls=files)


def _encrypted(issued: Issued, folder: Path) -> Path:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    path = folder / "encrypted.key"
    how = serialization.BestAvailableEncryption(b"hush")
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    return path


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"cert": "a.pem"}, "tls.key: expected the path of a PEM file: both cert and key are needed"),
        ({"cert": 1, "key": "b"}, "tls.cert: expected the path of a PEM file, not 1"),
        ({"certs": "a"}, "tls: unknown key 'certs'; did you mean 'cert'"),
        ("a.pem", "tls: expected a map with cert, key"),
        ({"cert": "a", "key": "b", "client_auth": "always"}, "tls.client_auth: expected optional or required"),
        ({"cert": "a", "key": "b", "client_auth": "required"}, "tls.client_auth: expected client_ca too"),
        ({"cert": "a", "key": "b", "crl": "c"}, "tls.crl: expected client_ca too"),
        ({"client": {"cert": "a"}}, "tls.client: expected both cert and key, or neither"),
        ({"client": {"ca": "none.pem"}}, "can't read the authorities in"),
    ],
)
def test_mistakes_in_the_profile_are_named(tmp_path: Path, tls: Any, said: str) -> None:
    with pytest.raises((EnvironmentProblem, ClientError), match=re.escape(said)):
        started(tmp_path, tls=tls)


def test_files_that_cannot_be_used_end_the_command_with_a_message(tmp_path: Path) -> None:
    profile = processes.write_profile(tmp_path, tls={"cert": "none.pem", "key": "none.key"})
    ended = processes.tidegate("gateway", "--profile", profile, "--port", "0", data=prepared(tmp_path / "data"))
    assert ended.returncode == 2, ended.stdout
    assert "error: tls.cert: can't read" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_half_of_a_pair_on_the_command_line_is_refused(authority: Authority, tmp_path: Path) -> None:
    data = prepared(tmp_path / "data")
    ended = processes.tidegate("gateway", "--tls-cert", authority.server().cert, "--port", "0", data=data)
    assert "expected both --tls-cert and --tls-key" in ended.stderr


def test_key_readable_by_others_logs_a_warning(authority: Authority, tmp_path: Path) -> None:
    server = authority.server("lax")
    os.chmod(server.key, 0o644)
    with processes.gateway(prepared(tmp_path / "data"), "--tls-cert", server.cert, "--tls-key", server.key) as running:
        assert "other users can read the private key" in running.output.read_text()
    strict = authority.server("strict")
    with processes.gateway(
        prepared(tmp_path / "strict"), "--tls-cert", strict.cert, "--tls-key", strict.key
    ) as running:
        assert "other users can read" not in running.output.read_text()


# Client certificates -------------------------------------------------------------------


class Certified:
    """A gateway that knows some callers by certificate, in a profile that can be changed."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.folder, self.authority, self.data = folder, authority, prepared(folder / "data")
        self.server = authority.server(f"server-{folder.name}")
        self.rules: list[dict[str, Any]] = [
            {"subject": "CN=fleet", "name": "fleet", "role": "provider"},
            {"uri": "spiffe://city/watcher", "name": "watcher"},
            {"dns": "scoped.example.org", "name": "scoped", "services": ["other"]},
        ]
        self.tls: dict[str, Any] = {
            "cert": str(self.server.cert),
            "key": str(self.server.key),
            "client_ca": str(authority.cert),
            "crl": str(authority.revocations()),
        }

    def write(self, **access: Any) -> Path:
        access = {"required": True, "certificates": self.rules, **access}
        return processes.write_profile(self.folder, tls=self.tls, access=access)

    def get(self, running: Running, issued: Issued | None, path: str = "/v1/me", **headers: str) -> httpx.Response:
        with self.client(running, issued) as client:
            return client.get(path, headers=headers)

    def client(self, running: Running, issued: Issued | None) -> httpx.Client:
        return httpx.Client(base_url=running.url, verify=contexts(self.authority.cert, issued), timeout=30)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Certified, Running, str]]:
    folder = tmp_path_factory.mktemp("certified")
    made = Certified(folder, Authority(folder / "ca"))
    key = processes.create_key(made.data, "reader", "consumer")
    with processes.gateway(made.data, "--profile", made.write(), "--origin", "*") as running:
        yield made, running, key


def test_certificate_identifies_the_caller(certified: tuple[Certified, Running, str]) -> None:
    made, running, _ = certified
    fleet = made.authority.client("fleet")
    me = made.get(running, fleet).json()
    assert (me["name"], me["role"]) == ("fleet", "provider")
    watcher = made.authority.client("anything", uri="spiffe://city/watcher")
    assert made.get(running, watcher).json()["name"] == "watcher"
    with made.client(running, fleet) as client:
        assert client.post("/v1/streams/readings/events", json=EVENT).status_code == 200
    with made.client(running, watcher) as client:
        assert client.get("/v1/services/gps/events").status_code == 200
        assert client.post("/v1/streams/readings/events", json=EVENT).status_code == 403
    scoped = made.authority.client("scoped", dns="scoped.example.org")
    assert made.get(running, scoped, "/v1/services/gps/events").status_code in (403, 404)


def test_certificates_that_no_entry_names_open_nothing(certified: tuple[Certified, Running, str]) -> None:
    from cryptography.x509.oid import NameOID

    made, running, _ = certified
    twice = [(NameOID.COMMON_NAME, "fleet"), (NameOID.COMMON_NAME, "stranger")]
    strangers = [
        None,
        made.authority.client("stranger"),
        made.authority.client("Fleet"),
        made.authority.with_subject("twice", twice),
        made.authority.with_subject("unit", [(NameOID.ORGANIZATIONAL_UNIT_NAME, "CN=fleet")]),
        made.authority.client("x", dns="fleet"),
        made.authority.client("y", uri="spiffe://city/watcher/more"),
        made.authority.client("z", dns="*.example.org"),
    ]
    for each in strangers:
        assert made.get(running, each, "/v1/services/gps/events").status_code == 401, each


def test_certificates_of_strangers_expired_ones_and_those_of_servers_are_refused_in_the_handshake(
    certified: tuple[Certified, Running, str], tmp_path: Path
) -> None:
    made, running, _ = certified
    foreign = Authority(tmp_path / "foreign").client("fleet")
    for each in (foreign, made.authority.client("fleet", ends=EXPIRED), made.authority.server("fleet")):
        context = contexts(made.authority.cert)
        context.load_cert_chain(*each.pair)  # as a client that does not look at its own certificate
        with pytest.raises((httpx.TransportError, ssl.SSLError)):
            httpx.get(f"{running.url}/v1/me", verify=context, timeout=30)


def test_command_line_signs_in_by_certificate_and_says_why_it_is_refused(
    certified: tuple[Certified, Running, str], tmp_path: Path
) -> None:
    made, running, _ = certified
    asked = ("services", "--url", running.url, "--ca", made.authority.cert, "--json")
    fleet, expired = made.authority.client("fleet"), made.authority.client("expired", ends=EXPIRED)
    known = processes.tidegate(*asked, "--cert", fleet.cert, "--cert-key", fleet.key, data=tmp_path)
    assert known.returncode == 0, known.stderr
    assert json.loads(known.stdout)[0]["service"] == "gps"
    foreign = Authority(tmp_path / "foreign").client("fleet")
    for issued, said in ((expired, "expired at"), (foreign, "a gateway that does not trust its authority ends")):
        refused = processes.tidegate(*asked, "--cert", issued.cert, "--cert-key", issued.key, data=tmp_path)
        assert refused.returncode == 2
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr


def test_key_takes_precedence_over_a_certificate(certified: tuple[Certified, Running, str]) -> None:
    made, running, key = certified
    fleet = made.authority.client("fleet")
    assert made.get(running, fleet, authorization=f"Bearer {key}").json()["name"] == "reader"
    assert made.get(running, fleet, authorization="Bearer tg_wrong").status_code == 401


def test_headers_that_proxies_set_are_no_certificate(certified: tuple[Certified, Running, str]) -> None:
    made, running, _ = certified
    pem = made.authority.client("fleet").cert.read_text().replace("\n", "")
    for name in ("x-client-cert", "x-forwarded-client-cert", "ssl-client-cert", "x-ssl-client-s-dn"):
        assert made.get(running, None, **{name: pem}).status_code == 401


def test_page_of_another_site_cannot_use_the_certificate_of_a_browser(
    certified: tuple[Certified, Running, str],
) -> None:
    made, running, _ = certified
    fleet = made.authority.client("fleet")
    own = running.url
    assert made.get(running, fleet, origin=own).status_code == 200
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert made.get(running, fleet, **headers).status_code == 403, headers
        with made.client(running, fleet) as client:
            answer = client.post("/v1/streams/readings/events", content=json.dumps(EVENT), headers=headers)
            assert answer.status_code == 403, headers
    context = contexts(made.authority.cert, fleet)
    with pytest.raises(Exception, match=r"403|rejected"):
        connect(running.url.replace("https", "wss") + "/v1/events", ssl=context, origin=Origin("https://evil.example"))


def test_durable_subscriptions_belong_to_the_certificate_that_made_them(
    certified: tuple[Certified, Running, str],
) -> None:
    made, running, _ = certified
    fleet, watcher = made.authority.client("fleet"), made.authority.client("w", uri="spiffe://city/watcher")
    with made.client(running, fleet) as client:
        created = client.post("/v1/services/gps/subscriptions", json={"filter": "speed > 1"})
        assert created.status_code == 201, created.text
        id_ = created.json()["id"]
    renewed = made.authority.client("fleet")
    assert made.get(running, renewed, f"/v1/subscriptions/{id_}").status_code == 200
    assert made.get(running, watcher, f"/v1/subscriptions/{id_}").status_code in (403, 404)


def test_revoked_certificate_and_removed_entry_lose_their_rights(tmp_path: Path) -> None:
    made = Certified(tmp_path, Authority(tmp_path / "ca"))
    fleet = made.authority.client("fleet")
    watcher = made.authority.client("w", uri="spiffe://city/watcher")
    with (
        processes.gateway(made.data, "--profile", made.write()) as running,
        made.client(running, fleet) as by_fleet,
        made.client(running, watcher) as by_watcher,
        by_fleet.stream("GET", "/v1/services/gps/events", headers={"accept": "text/event-stream"}) as stream,
    ):
        assert stream.status_code == 200
        assert by_watcher.get("/v1/me").json()["name"] == "watcher"

        made.rules = [each for each in made.rules if each["name"] != "watcher"]
        made.write()
        until(lambda: by_watcher.get("/v1/me").status_code == 401, "the removed entry to open nothing")
        assert by_fleet.get("/v1/me").status_code == 200

        made.authority.revoke(fleet)
        with pytest.raises(httpx.TransportError):
            for _ in stream.iter_bytes():  # ends when the connection is cut
                pass
        with pytest.raises((httpx.TransportError, ssl.SSLError)):
            made.get(running, fleet)


def test_revoked_certificate_cannot_resume_a_session(tmp_path: Path) -> None:
    made = Certified(tmp_path, Authority(tmp_path / "ca"))
    fleet = made.authority.client("fleet")
    with processes.gateway(made.data, "--profile", made.write()) as running:
        context = contexts(made.authority.cert, fleet)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        host, port = running.url.removeprefix("https://").split(":")

        def asked(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
            with (
                socket.create_connection((host, int(port)), timeout=10) as plain,
                context.wrap_socket(plain, server_hostname=host, session=session) as wrapped,
            ):
                wrapped.sendall(b"GET /v1/me HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                return wrapped.recv(65_536), wrapped.session

        answer, session = asked(None)
        assert answer.startswith(b"HTTP/1.1 200")
        made.authority.revoke(fleet)
        until(
            lambda: "connections with client certificates closed" in running.output.read_text(), "the list to be read"
        )
        with pytest.raises((ssl.SSLError, OSError)):
            raise OSError if asked(session)[0] == b"" else AssertionError("the session was resumed")


def test_required_certificate_refuses_callers_without_one(tmp_path: Path) -> None:
    made = Certified(tmp_path, Authority(tmp_path / "ca"))
    made.tls["client_auth"] = "required"
    key = processes.create_key(made.data, "boss", "admin")
    with processes.gateway(made.data, "--profile", made.write()) as running:
        bearer = {"authorization": f"Bearer {key}"}
        for path in ("/v1/services", "/metrics", "/", "/openapi.json", "/livez/../v1/services"):
            answer = made.get(running, None, path, **bearer)
            assert answer.status_code == 403, path
        assert "asks for a client certificate" in made.get(running, None, "/v1/me", **bearer).text
        assert made.get(running, None, "/livez").status_code == 200
        assert made.get(running, made.authority.client("unlisted"), "/v1/me", **bearer).json()["name"] == "boss"
        assert made.get(running, made.authority.client("fleet"), "/v1/me").json()["name"] == "fleet"
        for path in ("/v1/events", "/v1/link"):
            with pytest.raises(Exception, match=r"403|rejected"):
                connect(running.url.replace("https", "wss") + path, ssl=contexts(made.authority.cert))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{"name": "a"}], "expected one of subject, uri, dns"),
        ([{"subject": "CN=a", "dns": "a", "name": "a"}], "expected one of subject, uri, dns"),
        ([{"subject": "fleet", "name": "a"}], "expected a subject such as CN=fleet,O=City, not 'fleet'"),
        ([{"subject": "CN=a"}], "[0].name: expected the caller's name, not nothing"),
        ([{"subject": "CN=a", "name": "a", "role": "king"}], "[0].role: expected one of"),
        ([{"subject": "CN=a", "name": "a", "services": "gps"}], "[0].services: expected a list of names"),
        ([{"subject": "CN=a", "name": "a", "quotas": 3}], "[0].quotas: expected limits by name"),
        ([{"subject": "CN=a", "name": "a"}, {"subject": "CN=a", "name": "b"}], "has the same certificate as entry 1"),
        ([{"dns": "a", "name": "a"}, {"dns": "b", "name": "a"}], "entry 2 has the same name as entry 1"),
        ([{"dns": "a", "link": "edge", "role": "admin"}], "link: expected no other key"),
        ({"a": 1}, "access.certificates: expected a list of entries"),
        ([{"dns": "a", "name": "a"}], "callers can't show a client certificate without TLS"),
    ],
)
def test_mistakes_in_the_list_of_certificates_are_named(tmp_path: Path, entries: Any, said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=re.escape(said)):
        started(tmp_path, access={"certificates": entries})


def test_certificates_without_an_authority_are_refused(authority: Authority, tmp_path: Path) -> None:
    server = authority.server("lonely")
    files = {"cert": str(server.cert), "key": str(server.key)}
    with pytest.raises(EnvironmentProblem, match=r"access\.certificates: expected tls\.client_ca too"):
        started(tmp_path, tls=files, access={"certificates": [{"dns": "a", "name": "a"}]})


def test_certificate_that_expires_ends_the_connection() -> None:
    from tidegate.gateway.auth.certificates import CertificateRule, Certificates, PeerCertificate
    from tidegate.gateway.http.problems import HttpProblem

    rule = CertificateRule("dns", "a.example.org", "a")
    peer = PeerCertificate(b"1", (), frozenset(), frozenset({"a.example.org"}), datetime(2026, 1, 2, tzinfo=UTC))
    known = Certificates([rule])
    caller = known.caller(peer, datetime(2026, 1, 1, tzinfo=UTC))
    assert caller is not None
    assert caller.expires_at == peer.expires_at
    with pytest.raises(HttpProblem, match="expired at 2026-01-02"):
        known.caller(peer, datetime(2026, 1, 3, tzinfo=UTC))


# Links ---------------------------------------------------------------------------------


def linked(url: str, ca: Path, key: str, name: str) -> dict[str, Any]:
    """How a link of a gateway is."""
    with Client(url, key=key, verify=ca) as client:
        return next(each for each in client.links()["links"] if each["name"] == name)


def test_links_verify_the_neighbour_and_may_need_its_certificate(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path / "ca"), Authority(tmp_path / "foreign", "Foreign CA")
    city, keys = authority.server("city-server"), {}
    edge, wrong = authority.client("edge"), authority.client("wrong")
    secret = "s" * 40
    folders = {name: tmp_path / name for name in ("city", "edge")}
    for name, folder in folders.items():
        prepared(folder / "data")
        keys[name] = processes.create_key(folder / "data", "boss", "admin")
    city_profile = processes.write_profile(
        folders["city"],
        tls={"cert": str(city.cert), "key": str(city.key), "client_ca": str(authority.cert)},
        access={"required": True, "certificates": [{"subject": "CN=edge", "link": "edge"}]},
    )

    def edge_profile(ca: Path, shown: Issued | None) -> Path:
        own = {} if shown is None else {"cert": str(shown.cert), "key": str(shown.key)}
        server = authority.server("edge-server")
        tls = {"cert": str(server.cert), "key": str(server.key), "client": {"ca": str(ca), **own}}
        return processes.write_profile(folders["edge"], tls=tls)

    with processes.gateway(folders["city"] / "data", "--profile", city_profile, "--broker", "city") as answering:
        with Client(answering.url, key=keys["city"], verify=authority.cert) as client:
            client.add_link("edge", None, secret)
        for ca, shown, said in (
            (foreign.cert, edge, "CERTIFICATE_VERIFY_FAILED"),
            (authority.cert, None, "needs a client certificate with subject 'CN=edge', and none was shown"),
            (authority.cert, wrong, "needs a client certificate with subject 'CN=edge', not 'wrong'"),
            (authority.cert, edge, None),
        ):
            profile = edge_profile(ca, shown)
            with processes.gateway(folders["edge"] / "data", "--profile", profile, "--broker", "edge") as dialling:
                with Client(dialling.url, key=keys["edge"], verify=authority.cert) as client:
                    if not client.links()["links"]:
                        client.add_link("city", answering.url, secret)

                def state(url: str = dialling.url) -> dict[str, Any]:
                    return linked(url, authority.cert, keys["edge"], "city")

                if said is None:
                    until(lambda: state()["state"] == "up", "the link to come up")
                else:

                    def is_refused(reason: str = said) -> bool:
                        return reason in str(state()["problem"])

                    until(is_refused, f"the link to be refused: {said}")
                    assert state()["state"] != "up"


# `tidegate up` ---------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.xdist_group("tls-up")
def test_up_serves_https_and_commands_of_its_folder_verify_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.server("named", hosts=["gateway.example.org"])  # not the name that commands use
    data = tmp_path / "data"
    with processes.up(data, "--tls-cert", server.cert, "--tls-key", server.key, services=CITY) as running:
        assert running.url.startswith("https://127.0.0.1:")
        sent = processes.tidegate("publish", "gps_taxi", data=data, stdin=json.dumps(EVENT) + "\n")
        assert sent.returncode == 0, sent.stderr
        shown = processes.tidegate("top", "--once", "--json", data=data)
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout)["url"] == running.url
        with httpx.Client(base_url=running.url, verify=client_context(False), timeout=30) as client:
            until(lambda: bool(client.get("/v1/services/gps/events?from=beginning").json()["events"]), "the event")
