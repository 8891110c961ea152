"""How long the searches are: TIDEGATE_TESTS is quick (make check), soak (make soak), or neither (make test)."""

from __future__ import annotations

import functools
import os
import signal
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests import soak

if TYPE_CHECKING:
    from tests.kafka_broker import Broker

LENGTH = os.environ.get("TIDEGATE_TESTS", "full")
EXAMPLES = {"quick": 10, "full": 120, "soak": soak.examples()}[LENGTH]
"""Examples of each property."""
LARGE_EXAMPLES = {"quick": 6, "full": 25, "soak": soak.scaled(500, 25)}[LENGTH]
"""Examples of properties whose every example is an index of many filters."""
TEXTS = {"quick": 300, "full": 10_000, "soak": soak.scaled(200_000, 10_000)}[LENGTH]
"""Random and mutated texts that the language is given."""
SPARK_SEEDS = {"quick": 1, "full": 3, "soak": soak.scaled(40, 3)}[LENGTH]
"""Random sets of filters that Spark evaluates."""
ROUNDS = {"quick": 1, "full": 1, "soak": soak.scaled(20, 1)}[LENGTH]
"""Rounds of random streams through every operator with state."""
KILLS = {"quick": 1, "full": 3, "soak": soak.scaled(20, 3)}[LENGTH]
"""How often a running Tidegate is killed."""

if LENGTH != "soak":  # short lives: compiling well would cost each of the many JVMs more than all else that it does
    # The code of many services does not fit into the cache that it has then, and the JVM would stop to compile.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")

# Each client over HTTP reads the certificates of the world, for longer than all else that a test of loopback does.
ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]

# A gateway in the process of a test logs beside commands whose output is looked at.
structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))

# A shell starts what it runs in the background without Ctrl-C, and every process of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    LENGTH, max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
settings.load_profile(LENGTH)


PROCESSES = (
    "benchmarks/",
    "cli/commands/test_explain.py",
    "cli/commands/test_subscribe.py",
    "cli/commands/test_subscriptions.py",
    "cli/commands/test_top.py",
    "cli/demo/test_subscribers.py",
    "cli/processes/test_runner_lease.py",
    "cli/processes/test_shared_registry.py",
    "cli/test_package.py",
    "client/",
    "console/",
    "deploy/",
    "docs/test_client_document.py",
    "docs/test_delivery.py",
    "docs/test_ingest_document.py",
    "docs/test_quarantine_document.py",
    "docs/test_subscriptions.py",
    "ingress/http/test_worker.py",
    "gateway/auth/",
    "gateway/describe/",
    "gateway/http/",
    "gateway/routes/",
    "gateway/subscriptions/",
    "gateway/telemetry/",
    "gateway/test_",
    "gateway/transports/",
    "matching/test_workers.py",
    "ingress/feeds/test_demo.py",
    "ingress/feeds/test_mqtt.py",
    "registry/test_concurrency.py",
    "registry/test_migrations.py",
    "registry/test_sqlite.py",
    "security/",
)
"""Tests that start many processes or servers, each of which takes its seconds."""
QUICK = ("gateway/routes/test_services.py", "gateway/transports/test_sse.py")
"""Of these those that do not, or not many."""


SHARED = ("kafka", "broker", "spark", "postgres")
"""Fixtures that start a server: all tests that ask for one run in the same process, where it is started once. Of
several the first counts: it takes the longest to start, and each next may be started twice."""


LONGEST = (
    "pipelines/test_kill.py",
    "cli/demo/test_command.py",
    "cli/commands/test_up.py",
    "pipelines/test_semantics.py",
    "cli/",
    "gateway/test_links_kill.py",
    "gateway/describe/test_openapi.py",
    "gateway/test_gateway_kill.py",
    "benchmarks/",
)
"""What begins first, behind groups of many tests: at the end all others would wait for it."""


def pytest_configure(config: pytest.Config) -> None:
    """Set up the budget, the progress line and the report of a soak."""
    if LENGTH == "soak":
        config.pluginmanager.register(soak, "soak")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Group what shares a server, before pytest-xdist looks at groups."""
    server = next((each for each in SHARED if each in getattr(item, "fixturenames", ())), None)
    if server is not None:
        item.add_marker(pytest.mark.xdist_group(server))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest; mark what takes its time."""
    places = {item.path: _place(item.path) for item in items}
    items.sort(key=lambda item: _turn(places[item.path]))
    for item in items:
        place = places[item.path]
        if place.startswith(PROCESSES) and place not in QUICK:
            item.add_marker("processes")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run where pytest-xdist does not keep groups together, as 3.8 does not with pytest 9.2."""
    if getattr(session.config.option, "loadgroup", False):
        apart = [
            item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        if apart:
            raise pytest.UsageError(f"{len(apart)} tests would not run with their group, the first: {apart[0]}")


def _place(path: Path) -> str:
    """Where a file is among the tests; empty: elsewhere."""
    here = Path(__file__).parent
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else ""


def _turn(place: str) -> int:
    return next((n for n, each in enumerate(LONGEST) if place.startswith(each)), len(LONGEST))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real broker; tests that ask for it are skipped where none can be had."""
    from tests.kafka_broker import need_kafka, running
    from tidegate.errors import EnvironmentProblem

    try:
        need_kafka()
    except EnvironmentProblem as exc:
        pytest.skip(f"no Kafka: {exc}")
    with running(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real Kafka broker that the tests of one file may pause and kill; skipped where none can be had."""
    from tests.kafka_broker import Broker, need_kafka
    from tidegate.errors import EnvironmentProblem

    try:
        need_kafka()
    except EnvironmentProblem as exc:
        pytest.skip(f"no Kafka: {exc}")
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL; tests that ask for it are skipped where none can be had."""
    from tests.postgres_server import postgres_or_skip, running

    with running(postgres_or_skip()) as url:
        yield url


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    """Commands that run in the process of a test keep others out of what they write: for that test alone."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
