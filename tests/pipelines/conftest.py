"""One local Spark for all tests that need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from tidegate.pipelines.session import service_session

    session = service_session("tidegate-tests", kafka=_has_kafka())
    yield session
    session.stop()


def _has_kafka() -> bool:
    """Return True if Kafka's client is available; otherwise tests that need it are skipped."""
    from tidegate.errors import EnvironmentProblem
    from tidegate.pipelines.connector import build

    try:
        build.kafka_jars()
    except EnvironmentProblem:
        return False
    return True
