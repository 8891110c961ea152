"""Spark sessions that work: the settings that every one of ours needs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.errors import EnvironmentProblem
from tidegate.pipelines.connector import archive, attach, build

_LOGGING = Path(__file__).with_name("log4j2.properties")

SLOTS = 128
"""Tasks that can run at once. A real-time task holds its slot as long as its service runs; threads, not cores."""

_PUSHING = tuple(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in ("PushDownPredicates", "PushPredicateThroughNonJoin")
)

_JVM = "-Xss8m -XX:-DontCompileHugeMethods -XX:+UseSerialGC"
"""Streaming plans recurse deeply: the default stack overflows. The code that Spark makes for a wide schema is longer
than what the JVM compiles by default. And the serial collector is the cheapest for a heap of a gigabyte."""

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Else ${env:NAME} in the name of an attribute becomes the value of an environment variable of the driver.
    "spark.sql.variable.substitute": "false",
    # Else every column that is made asks the JVM three times where in the Python code it was.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_SERVICE_LOADED = "-Dio.netty.bootstrap.extensions=serviceload"
"""Lets Netty load the class of the loopback jar, which keeps Spark's streaming shuffle off the wildcard address."""

_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

_CLUSTER_SECURITY = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Else a peer that does not know this protocol is talked to by an older one.
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
"""Of a Spark on other machines: who connects knows a secret, and nothing is readable on the wire or on a local disk."""

_SECRET = re.compile("secret|password|token|access.?key", re.IGNORECASE)
"""Settings by these names are never on the command line of the JVM, where every user of the machine can read them."""


def local_session(
    app: str,
    threads: int = 2,
    settings: Mapping[str, str] | None = None,
    *,
    master: str | None = None,
    jvm: str | None = None,
    connector: bool = False,
) -> SparkSession:
    """Start Spark inside this process, on loopback.

    `settings` override ours. `master`: `local[N]`, in place of `threads`. `jvm` are options of the driver's JVM in
    place of the archive of classes. `connector`: services may run in real-time mode, whose shuffle is kept on loopback.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = []
    if connector and (settings or {}).get("spark.driver.host", "127.0.0.1") in ("127.0.0.1", "localhost"):
        _add_to_class_path(build.loopback_jar())
        options = [_SERVICE_LOADED]
    # Slots are threads that mostly wait: a batch that is cut into as many parts pays for each and wins nothing.
    parallelism = {"spark.default.parallelism": str(os.cpu_count() or 1)}
    ours = {**_SETTINGS, **_driver(jvm, *options), **_LOOPBACK, **parallelism}
    return _session(app, master or f"local[{threads}]", _over(ours, settings or {}))


def service_session(
    app: str,
    settings: Mapping[str, str] | None = None,
    threads: int = SLOTS,
    *,
    master: str = "local",
    connector: bool = True,
    kafka: bool = False,
    jvm: str | None = None,
) -> SparkSession:
    """Start Spark as services need it: the connector, and a slot for every task of every service.

    `connector`: without it services run in micro-batches. `kafka`: with what a log
    in Kafka needs. `master`: of a cluster, whose machines must reach this one;
    `local` is this process, with `threads` slots, `local[N]` with N.

    On a cluster, processes authenticate each other and encrypt what they send and spill, unless `settings` say
    otherwise.
    """
    jars = [*([build.jar()] if connector else []), *(build.kafka_jars() if kafka else [])]
    ours = {
        **({"spark.jars": ",".join(map(str, jars))} if jars else {}),
        "spark.sql.shuffle.partitions": "1",
        # A filter that is pushed below the parsing of records parses them once for each attribute it names.
        "spark.sql.optimizer.excludedRules": ",".join(_PUSHING),
        "spark.sql.streaming.stopTimeout": "20s",
        "spark.sql.streaming.pollingDelay": "20ms",
        **(settings or {}),
    }
    if re.fullmatch(r"local(\[.*\])?", master):
        given = None if master == "local" else master
        return local_session(app, threads, ours, master=given, jvm=jvm, connector=connector)
    distributed = {**_CLUSTER_SECURITY, "spark.executor.extraJavaOptions": _JVM}
    return _session(app, master, _over({**_SETTINGS, **_driver(jvm), **distributed}, ours))


def _over(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Settings of others over ours; options of a JVM come behind ours, which stay."""
    joined = {key: f"{ours[key]} {theirs[key]}" for key in ours.keys() & theirs.keys() if key.endswith("JavaOptions")}
    return {**ours, **theirs, **joined}


def _driver(jvm: str | None, *more: str) -> dict[str, str]:
    extra = archive.option() if jvm is None else jvm
    options = (_JVM, *more, f"-Dlog4j2.configurationFile={_LOGGING}", extra)
    return {"spark.driver.extraJavaOptions": " ".join(filter(None, options))}


def _add_to_class_path(jar: Path) -> None:
    """Add a jar to the end of the class path of the JVM that PySpark will start: the archive of classes stays valid."""
    known = list(filter(None, os.environ.get("SPARK_DIST_CLASSPATH", "").split(os.pathsep)))
    if str(jar) not in known:
        os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join([*known, str(jar)])


def _session(app: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    need_java()
    # Else Spark's workers are whatever `python3` is on PATH, and time out.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    public = {key: value for key, value in settings.items() if not _SECRET.search(key)}
    attach.start_jvm({"spark.master": master, "spark.app.name": app, **public})
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    interrupted = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupted)  # PySpark takes Ctrl-C for itself
    return session


def need_java() -> None:
    """Say clearly that there is no Java, before Spark does it in forty lines."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        raise EnvironmentProblem(
            f"Spark needs a JDK 17 or newer, and {java!r} is not there: install one, or set JAVA_HOME "
            "('tidegate doctor' tells more)"
        )
