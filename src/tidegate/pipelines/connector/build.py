"""Compiles the Java sources next to this module to three jars.

A wheel contains the jars. In a checkout `javac` compiles them against Spark's jars. The file name contains a hash of
the sources and versions, so an outdated jar is never used. The jars are:

- the connector
- its Kafka part, which needs Kafka's client; the embedded log needs neither
- the class that keeps Spark's shuffle on loopback; it must be on the class path of the JVM, where Netty looks for it
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tidegate.errors import EnvironmentProblem
from tidegate.pipelines.connector import maven

_HERE = Path(__file__).parent
_RELEASE = "17"
_BRIEFLY = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
"""`javac` runs for seconds only: optimizing its own code would double that time."""
_WRITTEN = (1980, 1, 1, 0, 0, 0)


_OBSTACLE = (
    "the connector is not compiled and there is no javac: install a JDK 17 or newer, or a wheel of Tidegate that "
    "carries it, for milliseconds"
)

_SOURCES = _HERE / "java"
_KAFKA_SOURCES = _HERE / "java-kafka"
_LOOPBACK_SOURCES = _HERE / "java-loopback"


def jar() -> Path:
    """Return the connector's jar. Compiles it if it does not exist."""
    return find() or compile_to(cache() / _name())


def find() -> Path | None:
    """Return the connector's jar if it exists, in a wheel or from an earlier compilation; None otherwise."""
    return _found(_name())


def obstacle() -> str:
    """Return why there is no connector, and what to do; empty if it exists or `javac` can compile it."""
    is_compiled = find() is not None and _found(_loopback_name()) is not None
    return "" if is_compiled or compiler() is not None else _OBSTACLE


def compile_to(target: Path) -> Path:
    """Compile the connector to a jar. Other processes may do the same at the same time."""
    return _compile(_sources(_SOURCES), [], target)


def kafka_jars() -> list[Path]:
    """Return the jars that a log in Kafka needs too: our part, compiled if it does not exist, and Kafka's client."""
    clients = maven.kafka_jars(cache())
    return [_found(_kafka_name()) or compile_kafka_to(cache() / _kafka_name()), *clients]


def compile_kafka_to(target: Path) -> Path:
    """Compile the Kafka part of the connector to a jar."""
    return _compile(_sources(_KAFKA_SOURCES), [jar(), *maven.kafka_jars(cache())], target)


def loopback_jar() -> Path:
    """Return the jar that binds Netty's servers to loopback. Compiles it if it does not exist."""
    return _found(_loopback_name()) or compile_loopback_to(cache() / _loopback_name())


def compile_loopback_to(target: Path) -> Path:
    """Compile the class that binds Netty's servers to loopback to a jar."""
    return _compile(_sources(_LOOPBACK_SOURCES), [], target, services=_LOOPBACK_SOURCES / "META-INF")


def package() -> list[Path]:
    """Compile all jars into the folder that a wheel is built from. Returns their paths."""
    for stale in _HERE.glob("*.jar"):
        stale.unlink()
    return [
        compile_to(_HERE / _name()),
        compile_kafka_to(_HERE / _kafka_name()),
        compile_loopback_to(_HERE / _loopback_name()),
    ]


def _compile(sources: Sequence[Path], needed: Sequence[Path], target: Path, services: Path | None = None) -> Path:
    """Compile sources to a jar. `services` is a folder META-INF for `ServiceLoader` that the jar contains too.

    Raises an `EnvironmentProblem` if there is no `javac`, or the sources do not compile.
    """
    javac = compiler()
    if javac is None:
        raise EnvironmentProblem(
            "the connector to Spark is not compiled, and there is no javac to do it: install a JDK 17 or newer "
            "('tidegate doctor' tells more)"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        classes = Path(folder, "classes")
        classpath = os.pathsep.join(map(str, [*needed, f"{spark_jars()}/*"]))
        options = ["--release", _RELEASE, "-proc:none", "-nowarn", "-cp", classpath, "-d", str(classes)]
        command = [javac, *_BRIEFLY, *options]
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentProblem(f"the connector to Spark does not compile with {javac}:\n{done.stderr.strip()}")
        if services is not None:
            shutil.copytree(services, classes / "META-INF")
        packed = Path(folder, "packed.jar")
        _pack(classes, packed)
        packed.replace(target)
    return target


def _found(name: str) -> Path | None:
    return next((file for file in (_HERE / name, cache() / name) if file.exists()), None)


def _name() -> str:
    return f"tidegate-connector-{_content_hash('', _SOURCES)}.jar"


def _kafka_name() -> str:
    return f"tidegate-kafka-{_content_hash(maven.KAFKA_CLIENTS, _KAFKA_SOURCES, _SOURCES)}.jar"


def _loopback_name() -> str:
    return f"tidegate-loopback-{_content_hash('', _LOOPBACK_SOURCES)}.jar"


def _pack(classes: Path, jar_file: Path) -> None:
    with zipfile.ZipFile(jar_file, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(path for path in classes.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(classes).as_posix(), _WRITTEN)
            packed.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)


def _sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.java"))


def _content(folder: Path) -> list[Path]:
    return sorted((*_sources(folder), *folder.glob("META-INF/services/*")))


def _content_hash(needed: str, *folders: Path) -> str:
    content = hashlib.sha256(f"{version('pyspark')} {_RELEASE}{needed}".encode())
    for source in (file for folder in folders for file in _content(folder)):
        content.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def compiler() -> str | None:
    """Return the `javac` of JAVA_HOME, or else that on PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "javac")) if home else "javac")


def spark_jars() -> Path:
    """Return the folder of Spark's own jars."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentProblem("pyspark is not installed: pip install 'tidegate[spark]'")
    return Path(spec.origin).parent / "jars"


def cache() -> Path:
    """Return the folder of compiled and fetched jars, which all installations of a user share."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tidegate"
