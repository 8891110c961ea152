"""Reads Arrow bodies beside a slow, obvious reader, in a process that may crash without its parent.

Standard input has bodies, each behind its length in 4 bytes; standard output has a line for each: `refused`, `same`,
or what differs.
"""

from __future__ import annotations

import resource
import struct
import sys
from typing import Any

import orjson
import pyarrow as pa

from tidegate.errors import BodyError
from tidegate.ingress.http import formats
from tidegate.ingress.http.settings import IngestSettings
from tidegate.model import Schema

SCHEMA = Schema({"text": "string?", "n": "int64?", "x": "float64?", "on": "bool?", "tags": "string[]?"})
SETTINGS = IngestSettings(request_events=2_000, decoded_bytes=1024 * 1024)
MAX_MEMORY_BYTES = 4 * 1024**3
"""Of addresses: a body that made it allocate gigabytes ends this process, and the test with it."""


def slow_rows(body: bytes) -> list[dict[str, Any]]:
    """Every row by Arrow's own conversion, one value after the other."""
    with pa.ipc.open_stream(body) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def verdict(body: bytes) -> str:
    """Say what became of a body."""
    try:
        parsed = formats.parse("application/vnd.apache.arrow.stream", {}, body, SCHEMA, SETTINGS)
    except BodyError:
        return "refused"
    expected = [orjson.loads(orjson.dumps(each)) for each in slow_rows(body)]
    return "same" if list(parsed.events) == expected else f"{parsed.events[:3]} is not {expected[:3]}"


def main() -> None:
    """Judge until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    while head := sys.stdin.buffer.read(4):
        body = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
        sys.stdout.write(verdict(body).replace("\n", " ") + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
