"""Service vectors as bytes, so that registries can exchange what they have without listing it.

    8   TGVECTOR
    1   version: 1
    1   hashes
    2   zero
    4   bits
    4   number of services, then for each of them
        2   length of its name in bytes
        .   its name, UTF-8
        2   number of its attributes
        .   its vector: bits / 8 bytes, rounded up; bit n is bit n % 8 of byte n / 8
    4   CRC-32 of everything before

Numbers are little-endian. The bits of an attribute are part of the format: hash i is bytes 8i to 8i + 7 of BLAKE2b
(digest of 8 * hashes bytes, person `tidegate`) of its name, the byte 1F and its family in UTF-8, read as a number,
modulo the number of bits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tidegate.discovery.bloom import MAX_BITS, MAX_HASHES, BitVector, Bloom
from tidegate.errors import VectorError

MAGIC: Final = b"TGVECTOR"
VERSION: Final = 1
_HEAD = struct.Struct("<8sBBHII")
_SHORT = struct.Struct("<H")
_CHECK = struct.Struct("<I")
_MAX_SHORT = 0xFFFF


@dataclass(frozen=True, slots=True)
class ServiceVector:
    """One service as another registry knows it."""

    name: str
    attributes: int
    """Number of its attributes."""
    vector: BitVector


def write(bloom: Bloom, services: Iterable[tuple[str, int, Any]]) -> bytes:
    """Return the bytes of service vectors; each service is (name, number of attributes, vector).

    Raises `VectorError` if a name is too long.
    """
    size = (bloom.bits + 7) // 8
    parts = [b""]
    for name, attributes, vector in services:
        encoded = name.encode()
        if len(encoded) > _MAX_SHORT:
            raise VectorError(f"expected a name of at most {_MAX_SHORT:,} bytes, not {len(encoded):,}: {name[:60]}...")
        parts += [_SHORT.pack(len(encoded)), encoded, _SHORT.pack(min(attributes, _MAX_SHORT))]
        parts.append(vector.astype("<u8").tobytes()[:size])
    parts[0] = _HEAD.pack(MAGIC, VERSION, bloom.hashes, 0, bloom.bits, len(parts) // 4)
    body = b"".join(parts)
    return body + _CHECK.pack(zlib.crc32(body))


def read(data: bytes) -> tuple[Bloom, list[ServiceVector]]:
    """Read what `write` wrote. Raises `VectorError` for anything else."""
    if len(data) < _HEAD.size + _CHECK.size or data[:8] != MAGIC:
        raise VectorError(f"expected vectors, which begin with {MAGIC!r}, not {data[:8]!r}")
    _, version, hashes, _, bits, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise VectorError(f"expected vectors of version {VERSION}, not {version}")
    if not 1 <= hashes <= MAX_HASHES or not 1 <= bits <= MAX_BITS:
        raise VectorError(f"expected up to {MAX_BITS:,} bits and {MAX_HASHES} hashes, not {bits:,} and {hashes}")
    body = data[: -_CHECK.size]
    if zlib.crc32(body) != _CHECK.unpack(data[-_CHECK.size :])[0]:
        raise VectorError(f"the checksum of {len(data):,} bytes of vectors is wrong: they were cut off or changed")
    bloom = Bloom(bits, hashes)
    return bloom, list(_services(body, bloom, count))


def _services(body: bytes, bloom: Bloom, count: int) -> Iterator[ServiceVector]:
    size = (bloom.bits + 7) // 8
    at = _HEAD.size
    for n in range(count):
        try:
            (length,) = _SHORT.unpack_from(body, at)
            name = body[at + 2 : at + 2 + length].decode()
            (attributes,) = _SHORT.unpack_from(body, at + 2 + length)
        except (struct.error, UnicodeDecodeError) as error:
            raise VectorError(f"expected a name and a number of attributes for service {n}: {error}") from error
        at += 4 + length
        row = body[at : at + size]
        if len(row) < size:
            raise VectorError(f"expected {size} bytes of vector for service {n}, {name!r}, not {len(row)}")
        at += size
        yield ServiceVector(name, attributes, np.frombuffer(row.ljust(bloom.words * 8, b"\0"), "<u8").astype(np.uint64))
    if at != len(body):
        raise VectorError(f"expected the end after {count} services, not {len(body) - at} bytes more")
