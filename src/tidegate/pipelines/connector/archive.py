"""An archive of Spark's classes (class data sharing). The JVM maps it, which makes each start some seconds shorter.

`make setup` creates it for one JVM and the jars of one Spark. If it is missing or the JVM refuses it, Spark starts
without it and without a message.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tidegate.pipelines.connector import build

_TRIAL = """
import sys, tempfile
from pathlib import Path
from tidegate.pipelines.connector import archive
archive.run_trial(Path(tempfile.mkdtemp()), sys.argv[1])
"""
_PATIENCE_S = 300

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Otherwise a JVM that refuses the archive prints this to standard output, which a program may parse."""


def option() -> str:
    """Return the JVM options that use the archive; empty if there is no archive."""
    archive = path()
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}" if archive.exists() else ""


def path() -> Path:
    """Return the path of the archive. Its name depends on the JVM, and on size and time of Spark's jars."""
    java = shutil.which(str(Path(os.environ["JAVA_HOME"], "bin", "java")) if "JAVA_HOME" in os.environ else "java")
    real = Path(java or "java").resolve()
    named = hashlib.sha256()
    for file in (real, *sorted(build.spark_jars().glob("*.jar"))):
        status = file.stat() if file.exists() else None
        named.update(f"{file} {status and (status.st_size, status.st_mtime_ns)}\n".encode())
    return _folder() / f"classes-{named.hexdigest()[:16]}.jsa"


def make() -> bool:
    """Create the archive if it does not exist: start Spark and a service once, and store the classes that they loaded.

    Returns True if the archive exists now.
    """
    target = path()
    if target.exists():
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_suffix(f".{os.getpid()}")
    trial = [sys.executable, "-c", _TRIAL, str(new)]
    try:
        subprocess.run(trial, capture_output=True, timeout=_PATIENCE_S, check=True)
        new.replace(target)
    except (subprocess.SubprocessError, FileNotFoundError):  # it failed, or the machine is too busy to tell
        new.unlink(missing_ok=True)
        return False
    for old in set(target.parent.glob("classes-*.jsa")) - {target}:
        old.unlink()
    return True


def run_trial(folder: Path, target: str) -> None:
    """Run a small service to its first event, in a JVM that writes its classes to a file as it ends."""
    from tidegate.logs import SegmentLog
    from tidegate.pipelines import session
    from tidegate.pipelines.embedded import EmbeddedLog
    from tidegate.pipelines.engine import Engine
    from tidegate.services import loads

    text = """
streams: {a: {schema: {n: int64, x: float64, kind: string, time: timestamp}, event_time: time}}
services:
  plain: {from: a, pipeline: [{filter: n > 0}], constraints: {x: ">= 0"}, mask: {kind: hmac}}
  counted: {from: a, pipeline: [{aggregate: {count: n, by: [kind], window: {length: 60s}, emit: updates}}]}
"""
    definitions = loads(text)
    log = SegmentLog(folder / "log")
    log.create("a")
    spark = session.service_session("tidegate-archive", jvm=f"-XX:ArchiveClassesAtExit={target}")
    engine = Engine(spark, log, EmbeddedLog(spark, folder / "log"), folder / "checkpoints", key=b"archive")
    inputs = {"a": definitions.streams["a"].schema}
    jobs = [engine.start(service, 1, inputs) for service in definitions.services.values()]
    log.append("a", "0", [b'{"n":1,"x":1.5,"kind":"k","time":"2026-01-01T00:00:00Z"}'])
    for job in jobs:
        log.wait(job.service.name, log.begin(job.service.name), 60.0)
        engine.stop(job)
    spark.stop()
    log.close()
    shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    """Return the folder of the archive: in the Python environment of the jars, so that both are deleted together."""
    return Path(sys.prefix, "share", "tidegate")
