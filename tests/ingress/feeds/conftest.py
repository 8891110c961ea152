"""A Kafka broker, where the tests have one."""

from __future__ import annotations

import pytest


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> str:
    """The address of a real broker: the fixture `kafka` of all tests."""
    try:
        found: str = request.getfixturevalue("kafka")
    except pytest.FixtureLookupError:
        pytest.skip("no fixture kafka: these tests need a broker")
    return found
