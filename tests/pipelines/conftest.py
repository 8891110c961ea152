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

    session = service_session("tidegate-tests")
    yield session
    session.stop()
