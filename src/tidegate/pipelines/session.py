"""Starts Spark sessions with the settings that Tidegate needs."""

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
"""Tasks that can run at once. A slot is a thread, not a core. A real-time task uses its slot while its service runs."""

_PUSHING = tuple(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in ("PushDownPredicates", "PushPredicateThroughNonJoin")
)

_JVM = "-Xss8m -XX:-DontCompileHugeMethods -XX:+UseSerialGC"
"""Streaming plans recurse deeply, and overflow the default stack. The code that Spark generates for a wide schema is
longer than the JVM compiles by default. The serial collector is the cheapest for a heap of one gigabyte."""

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Otherwise ${env:NAME} in the name of an attribute is replaced by an environment variable of the driver.
    "spark.sql.variable.substitute": "false",
    # Otherwise creating a column takes three more calls into the JVM, to record its place in the Python code.
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
    # Otherwise a peer without this protocol is contacted with an older one.
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
"""For Spark on other machines: peers authenticate with a secret, and network and local disks are encrypted."""

# Otherwise a lost task counts as running until some other event comes: `attach.live_tasks` looks at these counts.
_CLUSTER_HEALTH = {"spark.ui.liveUpdate.period": "0"}

_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_SECRET = re.compile("secret|password|token|access.?key", re.IGNORECASE)
"""Settings with such names are not passed on the command line of the JVM, which every user of the machine can read."""


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
    # Slots are threads that mostly wait. Splitting a batch into as many parts would cost time for each, without a gain.
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
    """Start Spark for services: with the connector, and a slot for every task of every service.

    Without `connector`, services run in micro-batches. `kafka` adds the jars for a log in Kafka. `master` is that of a
    cluster, whose machines must reach this one; `local` is this process with `threads` slots, `local[N]` with N.

    On a cluster, processes authenticate each other, and encrypt network traffic and spilled data, unless `settings`
    override it.
    """
    jars = [*([build.jar()] if connector else []), *(build.kafka_jars() if kafka else [])]
    ours = {
        **({"spark.jars": ",".join(map(str, jars))} if jars else {}),
        "spark.sql.shuffle.partitions": "1",
        # A filter that is pushed below the parser would parse each record once per attribute in the filter.
        "spark.sql.optimizer.excludedRules": ",".join(_PUSHING),
        # Otherwise Spark refuses to merge or join results of an operator with state in real-time mode, which works.
        "spark.sql.streaming.unsupportedOperationCheck": "false",
        # The state store that `transformWithState` needs.
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        # Otherwise a Python processor reaches its state by a TCP port, which other users of the machine see.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.stopTimeout": "20s",
        "spark.sql.streaming.pollingDelay": "20ms",
        # Checkpoints keep the offsets of each input under its name, so that a new version may add and remove inputs.
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
        # How long a record waits in the shuffle for others to be sent with it; the default is 50.
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
        **(settings or {}),
    }
    if re.fullmatch(r"local(\[.*\])?", master):
        local_master = None if master == "local" else master
        return local_session(app, threads, ours, master=local_master, jvm=jvm, connector=connector)
    distributed = {**_CLUSTER_SECURITY, **_CLUSTER_HEALTH, "spark.executor.extraJavaOptions": _JVM}
    return _session(app, master, _over({**_SETTINGS, **_driver(jvm), **distributed}, ours))


def _over(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return our settings, overridden by others. JVM options are appended to ours instead."""
    joined = {key: f"{ours[key]} {theirs[key]}" for key in ours.keys() & theirs.keys() if key.endswith("JavaOptions")}
    return {**ours, **theirs, **joined}


def _driver(jvm: str | None, *more: str) -> dict[str, str]:
    extra = archive.option() if jvm is None else jvm
    options = (_JVM, *more, f"-Dlog4j2.configurationFile={_LOGGING}", extra)
    return {"spark.driver.extraJavaOptions": " ".join(filter(None, options))}


def _add_to_class_path(jar: Path) -> None:
    """Add a jar to the end of the class path of the JVM that PySpark will start: the archive of classes stays valid."""
    folders = list(filter(None, os.environ.get("SPARK_DIST_CLASSPATH", "").split(os.pathsep)))
    if str(jar) not in folders:
        os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join([*folders, str(jar)])


def _session(app: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    need_java()
    # Otherwise Spark's workers use the `python3` on PATH, and time out.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    public = {key: value for key, value in settings.items() if not _SECRET.search(key)}
    attach.start_jvm({"spark.master": master, "spark.app.name": app, **public})
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    interrupted = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupted)  # PySpark has replaced our handler of Ctrl-C
    return session


def need_java() -> None:
    """Raise EnvironmentProblem with a short message if there is no Java; Spark's message has forty lines."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        raise EnvironmentProblem(
            f"Spark needs a JDK 17 or newer, and {java!r} is missing: install one, or set JAVA_HOME "
            "('tidegate doctor' shows more)"
        )
