"""A real Kafka for tests: fetched by Maven, one node on loopback, gone when the tests are."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tidegate.errors import EnvironmentProblem
from tidegate.pipelines.connector.maven import fetch

# What Spark 4.2's connector is built with is 3.9.2, the newest that could be looked up; a broker of it takes
# every client since 2.1, and small segments, which a 4.x broker refuses.
BROKER = "org.apache.kafka:kafka_2.13:3.9.2"
CACHE = Path(__file__).parents[1] / ".cache" / "kafka"
START_S = 90.0

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=2097152
log.retention.check.interval.ms=100
log.initial.task.delay.ms=100
"""


def need_kafka() -> None:
    """Fetch what a broker runs with; an EnvironmentProblem says what is missing."""
    if shutil.which("java") is None:
        raise EnvironmentProblem("Kafka runs on Java, and 'java' is not there")
    fetch(BROKER, CACHE)


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Start a broker, and give its address when it answers."""
    port, controller = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(_PROPERTIES.format(port=port, controller=controller, folder=folder))
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", str(CACHE / BROKER.split(":", 1)[1].replace(":", "-") / "*")]
    # Kafka reads an id that begins with "-" as an option: the zero byte makes every id begin with "A".
    cluster = urlsafe_b64encode(bytes(1) + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    with (folder / "said").open("wb") as said:
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
        subprocess.run(format_, stdout=said, stderr=said, check=True, timeout=START_S)
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=said, stderr=said)
    try:
        address = f"127.0.0.1:{port}"
        _wait_until_it_answers(address, process, folder / "said")
        yield address
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(address: str, process: subprocess.Popen[bytes], said: Path) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        # A client each time: one that was refused waits longer and longer.
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        try:
            admin.list_topics(timeout=1.0)
        except KafkaException:
            continue
        return
    raise RuntimeError(f"Kafka did not start at {address}:\n{said.read_text()[-3_000:]}")
