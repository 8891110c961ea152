"""Fetches jars that no Python package contains, with Maven, into a cache.

A log in Kafka needs Kafka's Java client, which is not part of pyspark. Each artifact is fetched once. Maven's settings
decide from which repository, so the origin of a jar is not trusted: each time it is used, it must have the SHA-256 that
is pinned for its name.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from tidegate.errors import EnvironmentProblem

FETCH_TIMEOUT_S = 300.0
"""Long, because the first fetch also downloads Maven's own plugins."""

KAFKA_CLIENTS = "org.apache.kafka:kafka-clients:3.9.2"
"""The version of the broker in the tests. It works with every broker since 0.10."""

CHECKSUMS = Path(__file__).with_name("jars.sha256")
"""SHA-256 of each jar that we fetch, as `sha256sum` writes and checks them."""

_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidegate</groupId>
  <artifactId>fetched</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{name}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def kafka_jars(cache: Path) -> list[Path]:
    """Return the jars of Kafka's client, without those that pyspark contains."""
    import pyspark

    has = {_without_version(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return [jar for jar in fetch(KAFKA_CLIENTS, cache) if _without_version(jar) not in has]


def fetch(artifact: str, cache: Path, checksums: Path | None = None) -> list[Path]:
    """Return all jars of an artifact `group:name:version` and of its dependencies.

    Raises EnvironmentProblem if a jar, new or cached, has another checksum than `checksums` pins.
    """
    group, name, version = artifact.split(":")
    cache = cache.resolve()  # Maven would resolve it from the folder of the draft
    folder = cache / f"{name}-{version}"
    if not folder.is_dir():
        if shutil.which("mvn") is None:
            raise EnvironmentProblem(
                f"{artifact} is fetched by Maven, and 'mvn' is not there: install it, or put the jars into {folder}"
            )
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as draft:
            pom = Path(draft) / "pom.xml"
            pom.write_text(_POM.format(group=group, name=name, version=version))
            _copy_dependencies(artifact, pom, Path(draft) / "jars")
            _verify(artifact, Path(draft) / "jars", checksums or CHECKSUMS)
            # In one step: an incomplete cache would count as complete. A faster process has the same jars.
            with suppress(OSError):
                (Path(draft) / "jars").rename(folder)
    return _verify(artifact, folder, checksums or CHECKSUMS)


def _verify(artifact: str, folder: Path, checksums: Path) -> list[Path]:
    """Return the jars of a folder. Raises EnvironmentProblem if one of them is not pinned, or has another checksum."""
    lines = [line.split() for line in checksums.read_text(encoding="ascii").splitlines()]
    pinned = {name: checksum for checksum, name in lines}
    jars = sorted(folder.glob("*.jar"))
    for jar in jars:
        with jar.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if jar.name not in pinned:
            raise EnvironmentProblem(
                f"{jar.name}, which Maven brought for {artifact}, has no checksum in {checksums.name}: it is not "
                f"used. If you trust it, add its line: {actual}  {jar.name}"
            )
        if actual != pinned[jar.name]:
            raise EnvironmentProblem(
                f"{jar.name} of {artifact} has SHA-256 {actual}, expected {pinned[jar.name]}: it is not used. Delete "
                f"{folder}, and fetch it again from a repository that you trust"
            )
    return jars


def _copy_dependencies(artifact: str, pom: Path, into: Path) -> None:
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"]
    try:
        subprocess.run(
            ["mvn", "-q", "-B", "-U", "-f", str(pom), *goal],
            capture_output=True,
            text=True,
            check=True,
            timeout=FETCH_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(f"Maven did not fetch {artifact} within {FETCH_TIMEOUT_S:g} s") from None
    except subprocess.CalledProcessError as exc:
        lines = [line for line in f"{exc.stdout}\n{exc.stderr}".splitlines() if "[ERROR]" in line]
        reason = lines[0].partition("[ERROR] ")[2].partition(" -> [Help")[0] if lines else f"exit code {exc.returncode}"
        raise EnvironmentProblem(f"Maven can't fetch {artifact}: {reason}") from None


def _without_version(jar: Path) -> str:
    """Return the name of an artifact, without its version.

    >>> _without_version(Path("lz4-java-1.10.1.jar")), _without_version(Path("spark-sql_2.13-4.3.0.jar"))
    ('lz4-java', 'spark-sql_2.13')
    """
    return re.sub(r"-\d[^-]*(-.*)?\.jar$", "", jar.name)
