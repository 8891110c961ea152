"""Spark sessions that work: the settings that every one of ours needs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.errors import EnvironmentProblem

_LOGGING = Path(__file__).with_name("log4j2.properties")

_SETTINGS = {
    # Streaming plans recurse deeply: the default stack overflows.
    "spark.driver.extraJavaOptions": f"-Xss8m -Dlog4j2.configurationFile={_LOGGING}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def local_session(app: str, threads: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark inside this process, on loopback.

    `settings` override ours.
    """
    need_java()
    # Else Spark's workers are whatever `python3` is on PATH, and time out.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{threads}]").appName(app)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def need_java() -> None:
    """Say clearly that there is no Java, before Spark does it in forty lines."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        raise EnvironmentProblem(
            f"Spark needs a JDK 17 or newer, and {java!r} is not there: install one, or set JAVA_HOME "
            "('tidegate doctor' tells more)"
        )
