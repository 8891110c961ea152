"""A real Kafka for tests: fetched by Maven, one node on loopback, gone when the tests are."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority
from tests.polling import until
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
listeners={listener}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listener}://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
inter.broker.listener.name={listener}
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

_SECURE = """\
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={module} required username="{user}" password="{password}";
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
ssl.client.auth=required
"""


@dataclass(frozen=True)
class Secure:
    """A broker that requires a client certificate of an authority and the password of one user."""

    authority: Authority
    user: str
    password: str

    def properties(self, folder: Path) -> str:
        """Return the broker's properties for it."""
        server = self.authority.server("kafka")
        keystore = folder / "keystore.pem"
        keystore.write_bytes(server.key.read_bytes() + server.cert.read_bytes())
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return _SECURE.format(
            module=module, user=self.user, password=self.password, keystore=keystore, ca=self.authority.cert
        )

    def client(self) -> dict[str, str]:
        """Settings of a client that is let in."""
        issued = self.authority.client("kafka-client")
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.authority.cert),
            "ssl.certificate.location": str(issued.cert),
            "ssl.key.location": str(issued.key),
        }


def need_kafka() -> None:
    """Fetch the programs of a broker. Raises an EnvironmentProblem that names what is missing."""
    if shutil.which("java") is None:
        raise EnvironmentProblem("Kafka runs on Java, and 'java' is not there")
    fetch(BROKER, CACHE, Path(__file__).with_name("jars.sha256"))


@contextmanager
def running(folder: Path, secure: Secure | None = None) -> Iterator[str]:
    """Start a broker, with SASL and TLS or without, and give its address when it answers."""
    with Broker(folder, secure) as broker:
        yield broker.address


class Broker:
    """A broker of one node, which tests can pause, kill and start again with the same address and topics.

    Entering the context starts it; leaving the context ends it.
    """

    def __init__(self, folder: Path, secure: Secure | None = None) -> None:
        self._folder, self._secure = folder, secure
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self._settings = folder / "server.properties"
        listener = "PLAINTEXT" if secure is None else "SASL_SSL"
        text = _PROPERTIES.format(port=port, controller=controller, folder=folder, listener=listener)
        self._settings.write_text(text + ("" if secure is None else secure.properties(folder)))
        jars = CACHE / BROKER.split(":", 1)[1].replace(":", "-") / "*"
        self._java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", str(jars)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Broker:
        # Kafka reads an id that begins with "-" as an option: the zero byte makes every id begin with "A".
        cluster = urlsafe_b64encode(bytes(1) + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        format_ = [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)]
        if self._secure is not None:
            format_ += ["--add-scram", f"SCRAM-SHA-512=[name={self._secure.user},password={self._secure.password}]"]
        with (self._folder / "said").open("wb") as said:
            subprocess.run(format_, stdout=said, stderr=said, check=True, timeout=START_S)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        command = [*self._java, "kafka.Kafka", str(self._settings)]
        with (self._folder / "said").open("ab") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said)
        client = {} if self._secure is None else self._secure.client()
        try:
            _wait_until_it_answers(self.address, self._process, self._folder / "said", client)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the broker with SIGKILL: its port refuses connections until `start`."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stop the broker's process: connections stay open, and no request is answered until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        until(lambda: all(_is_stopped(thread) for thread in threads.iterdir()), "all threads of the broker to stop")

    def resume(self) -> None:
        """Continue a paused broker."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def _is_stopped(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"


def _wait_until_it_answers(
    address: str, process: subprocess.Popen[bytes], said: Path, client: Mapping[str, str]
) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        # A client each time: one that was refused waits longer and longer.
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0, **client})
        try:
            admin.list_topics(timeout=1.0)
        except KafkaException:
            continue
        return
    raise RuntimeError(f"Kafka did not start at {address}:\n{said.read_text()[-3_000:]}")
