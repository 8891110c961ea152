"""Arrow streams with bytes changed at random: never a crash, never another value than a slow reader sees."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.test_arrow import ipc

pytestmark = pytest.mark.processes

BATCHES = (
    pa.RecordBatch.from_pydict(
        {
            "text": ["a", None, "ccc", "é"],
            "n": [1, None, -3, 2**60],
            "x": [1.5, None, 2.0, 3.25],
            "on": [True, None, False, True],
            "tags": [["a", "b"], [], None, ["c"]],
        }
    ),
    pa.RecordBatch.from_arrays([pa.array(["a", "b", "a"]).dictionary_encode()], ["text"]),
    pa.RecordBatch.from_arrays([pa.array(["a", "b" * 40, None], pa.string_view())], ["text"]),
    pa.RecordBatch.from_arrays([pa.array([["a"], ["b", "c"]], pa.large_list(pa.large_string()))], ["tags"]),
)
BODIES = [ipc(each, each) for each in BATCHES]
INTERESTING = (0, 1, -1, 3, 127, 128, 255, 2**15, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63))


class Judge:
    """The other process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.security.arrow_judge"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )

    def ask(self, body: bytes) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(struct.pack("<I", len(body)) + body)
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().strip()
        assert answer, f"the process ended with {self.process.wait(10)}"
        return answer


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    judge = Judge()
    try:
        yield judge
    finally:
        judge.process.communicate(timeout=20)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid stream with some numbers overwritten, bytes flipped, or a part cut out or doubled."""
    body = bytearray(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body) - 1))
        match draw(st.sampled_from(("number", "byte", "cut", "double"))):
            case "number":
                width, value = draw(st.sampled_from((2, 4, 8))), draw(st.sampled_from(INTERESTING))
                at -= at % width
                body[at : at + width] = (value & (2 ** (8 * width) - 1)).to_bytes(width, "little")
            case "byte":
                body[at] ^= draw(st.integers(1, 255))
            case "cut":
                del body[at : at + draw(st.integers(1, 16))]
            case "double":
                body[at:at] = body[at : at + 8 * draw(st.integers(1, 8))]
        if not body:
            break
    return bytes(body)


def test_unchanged_streams_are_the_same(judge: Judge) -> None:
    assert [judge.ask(each) for each in BODIES] == ["same"] * len(BODIES)


@given(body=mutated())
def test_mutated_stream_is_refused_or_read_unchanged(judge: Judge, body: bytes) -> None:
    answer = judge.ask(body)
    assert answer in ("refused", "same")
