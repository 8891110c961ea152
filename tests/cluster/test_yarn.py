"""The same service file on a YARN cluster: a resource manager and node managers, whose containers are processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.profile.test_profiles_run import check_output, publish, up
from tests.conftest import LENGTH
from tests.docs.test_documents import ROOT
from tests.polling import until
from tidegate.errors import EnvironmentProblem
from tidegate.logs import SegmentLog
from tidegate.pipelines.connector.maven import fetch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(LENGTH != "soak", reason="starts YARN and Spark: in the soak only"),
]

ARTIFACTS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    "org.junit.jupiter:junit-jupiter-api:5.12.2",
    "org.bouncycastle:bcpkix-jdk18on:1.80",
)
"""YARN of the version of Hadoop that pyspark contains, and what it needs beside pyspark's jars."""
CLUSTER = Path(__file__).with_name("YarnCluster.java")


def spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Path]:
    """Start YARN with two node managers, and return the folder with the settings of its clients."""
    try:
        fetched = [
            jar for each in ARTIFACTS for jar in fetch(each, ROOT / ".cache" / "yarn", ROOT / "tests/jars.sha256")
        ]
    except EnvironmentProblem as problem:
        pytest.skip(f"no YARN: {problem}")
    theirs = {jar.name for jar in spark_jars().glob("*.jar")}
    ours = [jar for jar in fetched if jar.name not in theirs and not jar.name.startswith(("slf4j-", "commons-logging"))]
    folder, output = tmp_path / "yarn", tmp_path / "yarn.txt"
    folder.mkdir()
    java = Path(shutil.which("java") or "java").resolve()
    command = [str(java), "-Xmx512m", f"-Dtest.build.data={folder / 'data'}"]
    command += ["-cp", ":".join([*map(str, ours), f"{spark_jars()}/*"]), str(CLUSTER), str(folder), "2"]
    with output.open("wb") as written:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=written,
            env={**os.environ, "JAVA_HOME": str(java.parent.parent)},
        )
    try:
        until(lambda: (folder / "yarn-site.xml").exists() or process.poll() is not None, "YARN to start")
        assert process.poll() is None, output.read_text()[-5_000:]
        yield folder
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_services_run_on_yarn(settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(settings))
    profile = f"""
master: yarn
shared: true
spark:
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
  spark.executor.instances: 2
  spark.executor.cores: 8
  spark.executor.memory: 512m
  spark.yarn.am.memory: 512m
  spark.yarn.jars: "local:{spark_jars()}/*"
  spark.yarn.stagingDir: "file://{tmp_path}/staging"
"""
    with up(tmp_path, profile) as options:
        publish(options, 40)
        check_output(SegmentLog(tmp_path / "data" / "log"), 40)
