"""The connection to one Kafka cluster: client settings, the admin client, and errors as `LogError`."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from tidegate.errors import LogError, LogUnreachable, MissingDependency
from tidegate.timing import Throttle

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

LOG_INTERVAL_S = 30.0
"""Between two log lines of Kafka's clients that differ only in numbers, such as the client and the broker."""


class _Throttled(logging.Filter):
    """Holds back repeats: while a broker is away, each client logs each attempt to connect."""

    def __init__(self) -> None:
        super().__init__()
        self._throttle = Throttle(LOG_INTERVAL_S)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a repeat; otherwise add how many were left out."""
        message = record.getMessage()
        left_out = self._throttle.passes(_CLIENT_DETAILS.sub("", message))
        if left_out:
            record.msg, record.args = f"{message} ({left_out:,} similar lines were left out)", ()
        return left_out is not None


_CLIENT_DETAILS = re.compile(r"\[[^\]]*\]|\d+")
logger = logging.getLogger("tidegate.logs.kafka")
"""Where the clients of `confluent_kafka` log."""
logger.addFilter(_Throttled())

POLL_INTERVAL_S = 0.005
_REFUSAL_AGE_S = 30.0
"""A sign-in failure explains a timeout if it is at most this much older than the timeout itself."""


class KafkaCluster:
    """Shared by all clients of one `KafkaLog`. Thread-safe. Connects when the admin client is first used."""

    def __init__(self, brokers: str, timeout_s: float, client_settings: Mapping[str, str]) -> None:
        """`client_settings` are added to the settings of every client; raises MissingDependency without the client."""
        try:
            import confluent_kafka  # noqa: F401
        except ImportError as exc:
            raise MissingDependency("confluent-kafka", "kafka") from exc
        self.brokers, self.timeout_s = brokers, timeout_s
        defaults = {
            "bootstrap.servers": brokers,
            "socket.nagle.disable": "true",  # Nagle's algorithm would delay small requests
            "reconnect.backoff.max.ms": "1000",  # the default, 10 s, would delay recovery after an outage
            "log_level": "3",
        }
        self.client_settings: dict[str, Any] = {**defaults, **client_settings, "error_cb": self._remember_refusal}
        self._lock = Lock()
        self._admin: AdminClient | None = None
        self._refusal: tuple[float, str] | None = None
        """The last sign-in or TLS failure, and when it happened."""

    def admin(self) -> AdminClient:
        """Return the admin client, created at the first call."""
        from confluent_kafka.admin import AdminClient

        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(dict(self.client_settings), logger=logger)
            return self._admin

    def close(self) -> None:
        """Drop the admin client; the next call of `admin` creates another."""
        with self._lock:
            self._admin = None

    def wait_for(self, request: Future[Any], ignore: int | None = None) -> None:
        """Wait for the answer to a request. Raises LogError, except for the one error code to `ignore`."""
        from confluent_kafka import KafkaException

        try:
            request.result()
        except KafkaException as exc:
            if exc.args[0].code() != ignore:
                raise self.error(exc.args[0]) from exc

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Poll until a condition is true: brokers learn of a changed topic one after the other.

        Raises LogError after the timeout.
        """
        deadline = time.monotonic() + self.timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise self.unreachable()
            time.sleep(POLL_INTERVAL_S)

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise what Kafka's client raises inside the block as a LogError."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as exc:
            raise self.error(exc.args[0]) from exc

    def error(self, error: KafkaError) -> LogError:
        """Return the LogError for an error of Kafka's client."""
        from confluent_kafka import KafkaError as Kafka

        no_answer = (Kafka._TRANSPORT, Kafka._TIMED_OUT, Kafka._ALL_BROKERS_DOWN, Kafka._MSG_TIMED_OUT, Kafka._RESOLVE)
        no_leader = (Kafka._NOENT, Kafka.LEADER_NOT_AVAILABLE, Kafka.BROKER_NOT_AVAILABLE)
        if error.code() in (*no_answer, *no_leader):  # the brokers that lead the partitions are away
            return self.unreachable()
        if error.retriable():  # such as a partition that has no leader while brokers change
            return LogUnreachable(f"Kafka at {self.brokers} can't answer now: {error.str()}")
        return LogError(f"Kafka at {self.brokers} refuses: {error.str()}")

    def unreachable(self) -> LogUnreachable:
        """Return the error for a request without an answer; it names a failed sign-in, if there was one."""
        self._poll_errors()
        refusal = self._refusal
        if refusal is not None and time.monotonic() - refusal[0] < self.timeout_s + _REFUSAL_AGE_S:
            return LogUnreachable(
                f"Kafka at {self.brokers} refuses the connection: {refusal[1]}; check sasl and tls of log.kafka in the "
                "profile"
            )
        return LogUnreachable(
            f"no answer from Kafka at {self.brokers} within {self.timeout_s:g} s; check that it runs, that this "
            "host reaches it, and that its advertised.listeners name addresses this host can use"
        )

    def _poll_errors(self) -> None:
        """Let the admin client call `error_cb`: it does so only inside `poll`."""
        with self._lock:
            admin = self._admin
        if admin is not None:
            admin.poll(0)

    def _remember_refusal(self, error: KafkaError) -> None:
        """Remember why brokers refuse our connections: requests themselves only time out then."""
        from confluent_kafka import KafkaError as Kafka

        if error.code() in (Kafka._AUTHENTICATION, Kafka._SSL, Kafka.SASL_AUTHENTICATION_FAILED):
            self._refusal = time.monotonic(), error.str()
