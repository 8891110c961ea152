"""The cost of TLS: deliveries, ingest and new connections of one gateway with and without it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from statistics import median

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.delivery.events import STREAM
from benchmarks.delivery.fanout import CELLS, EVENTS, SHOWN, Step, windows
from benchmarks.delivery.harness import Serving, appending, gateway_alone, listening, of, sending
from benchmarks.delivery.listeners import Wanted
from benchmarks.reporting import Row, Setting, measured

SERVICES = f"""
streams: {{taxi: {STREAM}, alone: {STREAM}}}
services: {{gps: {{from: taxi}}}}
"""
"""No service reads `alone`, so that it accepts events without Spark."""
DELIVERIES = 10_000, 30_000
"""Deliveries per second, to 500 subscribers."""
CONNECTIONS = 500
BATCH = 500


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one gateway."""

    steps: tuple[Step, ...]
    ingested: float
    """Events per second that one producer gets acknowledged."""
    ingest_us: float
    """CPU time of the gateway per such event."""
    connect_ms: float
    """CPU time of the gateway per new connection."""


def encrypted(setting: Setting) -> Iterator[Row]:
    """500 SSE subscribers, one producer, and new connections, alternately with and without TLS 1.3."""
    rounds, warm_s, measured_s = (3, 1.0, 3.0) if setting.quick else (7, 2.0, 6.0)
    found: list[tuple[Figures, Figures]] = []
    with gateway_alone(SERVICES) as plain, gateway_alone(SERVICES, self_signed) as secure:
        for n in range(rounds):
            first, second = (plain, secure) if n % 2 == 0 else (secure, plain)  # alternate the order
            figures = {up.tls: _measure(up, warm_s, measured_s) for up in (first, second)}
            found.append((figures[False], figures[True]))
    yield from rows(found)


def _measure(up: Serving, warm_s: float, measured_s: float) -> Figures:
    steps = tuple(_delivered(up, due, warm_s, measured_s) for due in DELIVERIES)
    return Figures(steps, *_ingested(up, measured_s), _connected(up))


def rows(rounds: Sequence[tuple[Figures, Figures]]) -> Iterator[Row]:
    """The median with TLS beside that without, and the median of the rounds' ratios. A round is (without, with)."""
    for n, due in enumerate(DELIVERIES):
        for name, unit, value in SHOWN:
            pairs = [(value(plain.steps[n]), value(secure.steps[n])) for plain, secure in rounds]
            yield _compared(f"TLS, 500 SSE subscribers, {due:,} deliveries/s: {name}", unit, pairs)
    ingested = [(plain.ingested, secure.ingested) for plain, secure in rounds]
    yield _compared(f"TLS, NDJSON in batches of {BATCH}, one producer: acknowledged", "events/s", ingested)
    ingest_us = [(plain.ingest_us, secure.ingest_us) for plain, secure in rounds]
    yield _compared(f"TLS, NDJSON in batches of {BATCH}: CPU of the gateway for an event", "µs", ingest_us)
    connected = [(plain.connect_ms, secure.connect_ms) for plain, secure in rounds]
    yield _compared("TLS, a subscriber connects: CPU of the gateway", "ms", connected)


def _compared(what: str, unit: str, pairs: Sequence[tuple[float, float]]) -> Row:
    row = measured(what, median(secure for _, secure in pairs), unit)
    ratios = sorted(secure / plain for plain, secure in pairs if plain)
    if not ratios:
        return row
    beside = {"peer": "without TLS", "peer_value": median(plain for plain, _ in pairs), "ratio": median(ratios)}
    return row | beside | {"ratios": ratios}


def _delivered(up: Serving, due: int, warm_s: float, measured_s: float) -> Step:
    with (
        listening(up.port, windows(due), tls=up.tls) as subscribers,
        appending(up.log, ["gps"], EVENTS, warm_s + measured_s + 1, CELLS),
    ):
        time.sleep(warm_s)
        before, began, cpu_s = subscribers.ask(), time.monotonic(), up.cpu_s()
        time.sleep(measured_s)
        cpu_s, found, spent = up.cpu_s() - cpu_s, subscribers.ask(), time.monotonic() - began
    theirs = (found["cpu_s"] - before["cpu_s"]) / spent
    return Step(due, found["count"] / spent, of(found, "p50"), of(found, "p99"), cpu_s / spent, theirs)


def _ingested(up: Serving, seconds: float) -> tuple[float, float]:
    cpu_s = up.cpu_s()
    with sending(up.port, "alone", 0, seconds, CELLS, BATCH, tls=up.tls) as sender:
        count, spent = json.loads(sender.hear())
    return count / spent, 1e6 * (up.cpu_s() - cpu_s) / count


def _connected(up: Serving) -> float:
    before = up.cpu_s()
    with listening(up.port, [Wanted("gps", "cell = -1")] * CONNECTIONS, tls=up.tls):
        return 1e3 * (up.cpu_s() - before) / CONNECTIONS


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for loopback and its key; return their paths."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "gateway.pem", folder / "gateway.key"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.touch(mode=0o600)
    how = serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    return cert_file, key_file
