"""The entry point of the container runs executors of Spark on Kubernetes, and commands of Tidegate."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.docs.test_documents import ROOT

ENTRYPOINT = ROOT / "deploy" / "entrypoint.py"
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@runner-0.runner:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "32",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "tidegate-1-exec-1",
    "SPARK_EXECUTOR_MEMORY": "256m",
    "SPARK_JAVA_OPT_10": "-Dlast=x",
    "SPARK_JAVA_OPT_2": "-Dspark.app.name=with a blank",
}


def run(
    *arguments: str, path: Path | None = None, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "JAVA_HOME", "JDK_"))}
    if path is not None:
        kept["PATH"] = f"{path}:{kept['PATH']}"
    command = [sys.executable, str(ENTRYPOINT), *arguments]
    return subprocess.run(
        command, env={**kept, **environment}, capture_output=True, text=True, check=False, timeout=120
    )


def test_executor_is_started_with_the_options_of_its_environment(tmp_path: Path) -> None:
    (tmp_path / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "java").chmod(0o755)
    done = run("executor", path=tmp_path, environment={**EXECUTOR, "SPARK_CONF_DIR": "/opt/spark/conf"})
    arguments = done.stdout.splitlines()
    assert arguments[:5] == ["-Dspark.app.name=with a blank", "-Dlast=x", "-Xms256m", "-Xmx256m", "-cp"]
    paths = arguments[5].split(":")
    assert paths[0] == "/opt/spark/conf"
    assert list(Path(paths[1]).parent.glob("spark-kubernetes_*.jar"))
    assert arguments[6] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    options = dict(zip(arguments[7::2], arguments[8::2], strict=True))
    assert options["--driver-url"] == EXECUTOR["SPARK_DRIVER_URL"]
    assert options["--podName"] == "tidegate-1-exec-1"
    assert len(options) == 7


@pytest.mark.spark
def test_backend_of_spark_takes_the_options() -> None:
    """Nobody listens at the driver's address: the backend gets so far only if it knows every option."""
    done = run("executor", environment={**EXECUTOR, "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1"})
    said = done.stdout + done.stderr
    assert "Failed to connect to /127.0.0.1:1" in said, said[-3_000:]
    assert "Usage: " not in said


def test_missing_variables_are_named() -> None:
    done = run("executor", environment={**EXECUTOR, "SPARK_DRIVER_URL": ""})
    assert (done.returncode, done.stderr) == (
        1,
        "executor: Spark on Kubernetes sets SPARK_DRIVER_URL, and they are not set\n",
    )


def test_all_else_is_a_command_of_tidegate() -> None:
    import tidegate

    assert run("--version").stdout == f"tidegate {tidegate.__version__}\n"
