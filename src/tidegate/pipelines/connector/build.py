"""Compiles the Java of this folder to a jar, once for each content.

A wheel carries the jar. In a checkout `javac` makes it, against Spark's own
jars; its name holds a hash of all that went in, so that a stale one is never
taken for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tidegate.errors import EnvironmentProblem

_HERE = Path(__file__).parent
_SOURCES = _HERE / "java"
_RELEASE = "17"
_WRITTEN = (1980, 1, 1, 0, 0, 0)


def jar() -> Path:
    """Give the connector's jar, compiled now if it must be."""
    return find() or compile_to(_cache() / _name())


def find() -> Path | None:
    """The connector's jar, where there is one already: a wheel's, or what was compiled before."""
    return next((found for found in (_HERE / _name(), _cache() / _name()) if found.exists()), None)


def package() -> Path:
    """Compile the connector to where a wheel takes it from."""
    for stale in _HERE.glob("*.jar"):
        stale.unlink()
    return compile_to(_HERE / _name())


def compile_to(target: Path) -> Path:
    """Compile the connector to a jar; another process may do the same at once."""
    javac = compiler()
    if javac is None:
        raise EnvironmentProblem(
            "the connector to Spark is not compiled, and there is no javac to do it: install a JDK 17 or newer "
            "('tidegate doctor' tells more)"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        classes = Path(folder, "classes")
        command = [javac, "--release", _RELEASE, "-proc:none", "-nowarn", "-cp", f"{_spark_jars()}/*", "-d", classes]
        done = subprocess.run([*map(str, command), *map(str, _sources())], capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentProblem(f"the connector to Spark does not compile with {javac}:\n{done.stderr.strip()}")
        packed = Path(folder, "packed.jar")
        _pack(classes, packed)
        packed.replace(target)
    return target


def _name() -> str:
    return f"tidegate-connector-{_content_hash()}.jar"


def _pack(classes: Path, jar_file: Path) -> None:
    with zipfile.ZipFile(jar_file, "w", zipfile.ZIP_DEFLATED) as packed:
        for found in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(found.relative_to(classes).as_posix(), _WRITTEN)
            packed.writestr(entry, found.read_bytes(), zipfile.ZIP_DEFLATED)


def _sources() -> list[Path]:
    return sorted(_SOURCES.rglob("*.java"))


def _content_hash() -> str:
    content = hashlib.sha256(f"{version('pyspark')} {_RELEASE}".encode())
    for source in _sources():
        content.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def compiler() -> str | None:
    """The `javac` of JAVA_HOME, else that on PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "javac")) if home else "javac")


def _spark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentProblem("pyspark is not installed: pip install 'tidegate[spark]'")
    return Path(spec.origin).parent / "jars"


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tidegate"
