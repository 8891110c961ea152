"""Names of services with and without an origin."""

from __future__ import annotations

import pytest

from tidegate.model import ServiceName


@pytest.mark.parametrize("text", ["gps", "gps@city", "gps.v2@city-1", "@city", "gps@"])
def test_parsed_name_is_written_unchanged(text: str) -> None:
    assert str(ServiceName.parse(text)) == text


def test_only_a_name_with_an_origin_is_remote() -> None:
    assert ServiceName.parse("gps@city") == ServiceName("gps", "city")
    assert ServiceName.parse("gps@city").is_remote
    assert ServiceName.parse("gps") == ServiceName("gps")
    assert not ServiceName("gps").is_remote
