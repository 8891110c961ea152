"""Vectors that registries exchange."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.strategies import services
from tidegate.discovery import exchange
from tidegate.discovery.attributes import ServiceAttribute, WantedAttribute
from tidegate.discovery.bloom import Bloom, b_coverage
from tidegate.discovery.federated import VectorIndex
from tidegate.discovery.index import AttributeIndex
from tidegate.errors import DiscoveryError, VectorError

BLOOM = Bloom(100, 2)


def written(bloom: Bloom = BLOOM, **services: list[str]) -> bytes:
    index = AttributeIndex()
    for name, attributes in services.items():
        index.add(name, [ServiceAttribute(attribute, "number") for attribute in attributes])
    return exchange.write(bloom, index.exported(bloom))


@given(
    st.dictionaries(st.text(max_size=5), services, max_size=5), st.sampled_from([Bloom(100, 2), Bloom(64, 1), Bloom()])
)
def test_vectors_survive_a_round_trip(given_: dict[str, list[ServiceAttribute]], bloom: Bloom) -> None:
    index = AttributeIndex()
    for name, attributes in given_.items():
        index.add(name, attributes)
    read_bloom, actual = exchange.read(exchange.write(bloom, index.exported(bloom)))
    assert read_bloom == bloom
    assert {item.name: item.vector.tolist() for item in actual} == {
        name: bloom.vector(a.key for a in attributes).tolist() for name, attributes in given_.items()
    }
    assert {item.name: item.attributes for item in actual} == {name: len(a) for name, a in given_.items()}


def test_exchange_format_is_stable() -> None:
    assert {at for key in ("speed", "vid") for at in Bloom(32, 2).positions((key, "number"))} == {12, 16, 21, 25}
    head, service, vector, check = (
        "5447564543544f5201020000" + "2000000001000000",
        "03006770730200",
        "00102102",
        "5170d450",
    )
    assert written(Bloom(32, 2), gps=["speed", "vid"]).hex() == head + service + vector + check


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected vectors, which begin with b'TGVECTOR', not b''"),
        (b"{}" * 20, "not b'{}{}{}{}'"),
        (sealed(b"TGVECTOR\x02" + bytes(11)), "expected vectors of version 1, not 2"),
        (sealed(b"TGVECTOR\x01\x09" + bytes(10)), "up to 1,048,576 bits and 8 hashes, not 0 and 9"),
        (written(a=["x"])[:-1], "the checksum of 41 bytes of vectors is wrong"),
        (
            sealed(b"TGVECTOR\x01\x02\0\0\x64\0\0\0\x01\0\0\0"),
            "expected a name and a number of attributes for service 0",
        ),
        (sealed(written(a=["x"])[:-7]), "expected 13 bytes of vector for service 0, 'a', not 10"),
        (sealed(written(a=["x"])[:-4] + b"more"), "expected the end after 1 services, not 4 bytes more"),
    ],
)
def test_invalid_vector_bytes_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(VectorError) as caught:
        exchange.read(data)
    assert message in str(caught.value)


def test_too_long_name_is_refused() -> None:
    with pytest.raises(VectorError, match="expected a name of at most 65,535 bytes, not 70,000"):
        exchange.write(BLOOM, [("x" * 70_000, 0, BLOOM.vector([]))])


def test_vectors_with_other_settings_are_refused() -> None:
    index = VectorIndex(Bloom(64, 2))
    with pytest.raises(
        VectorError, match="expected vectors of 64 bits and 2 hashes, as in this registry, not 100 and 2"
    ):
        index.merge(written(a=["x"]))
    assert len(index) == 0


def test_remote_services_are_found_by_their_vectors() -> None:
    bloom = Bloom(1_024, 4)
    index = VectorIndex(bloom)
    assert index.merge(written(bloom, gps=["speed", "vid", "time"], air=["pm10", "time"], none=[])) == [
        "gps",
        "air",
        "none",
    ]
    wanted = [WantedAttribute("speed", "number"), WantedAttribute("time")]
    best, other = index.search(wanted)
    assert (best.name, best.at_most, other.name, other.at_most) == ("gps", 1.0, "air", 0.5)
    assert best.estimate == pytest.approx(1.0)
    assert [item.name for item in index.search(wanted, least=0.8)] == ["gps"]
    numbers = [WantedAttribute("speed", "number"), WantedAttribute("time", "number")]
    (certain,) = index.by_b_coverage(numbers, 0.9)
    vectors = [
        bloom.vector((name, "number") for name in names) for names in (["speed", "vid", "time"], ["speed", "time"])
    ]
    assert (certain.name, certain.b_coverage) == ("gps", b_coverage(*vectors))
    assert [item.name for item in index.by_b_coverage(numbers, 0.4)] == ["gps", "air"]


def test_replaced_or_removed_service_leaves_nothing_behind() -> None:
    index = VectorIndex(BLOOM)
    index.merge(written(a=["x", "y"]))
    index.merge(written(a=["z"]))
    assert [item.at_most for item in index.search([WantedAttribute("z", "number")])] == [1.0]
    assert index.search([WantedAttribute("y", "number")], least=1.0) == []
    assert index.remove("a")
    assert not index.remove("a")
    assert index.search([WantedAttribute("z", "number")]) == []


def test_search_without_attributes_is_refused() -> None:
    index = VectorIndex(BLOOM)
    with pytest.raises(DiscoveryError, match="expected 1 to 256 attributes, not 0"):
        index.search([])
    with pytest.raises(DiscoveryError, match="expected 1 to 256 attributes, not 0"):
        index.by_b_coverage([], 0.5)
