"""Arrow bodies that lie: about lengths, offsets, indices and sizes. Sent to a real gateway and its ingest process."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.security.processes import Running, gateway, tidegate

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("arrow-attacks")]

ARROW = "application/vnd.apache.arrow.stream"
STREAM = """
streams:
  all:
    schema:
      text: string?
      n: int64?
      on: bool?
      tags: "string[]?"
      many: "bool[]?"
  places: {schema: {pos: {x: "float64?", label: "string?"}}}
"""
MAX_ANSWER_S = 20.0
"""Generous, as the machine is shared: without bounds the worst of these bodies took minutes, or never ended."""
MAX_GROWTH_KB = 600 * 1024


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("arrow")
    (folder / "all.yaml").write_text(STREAM)
    applied = tidegate("apply", folder / "all.yaml", data=folder / "data")
    assert applied.returncode == 0, applied.stderr
    with gateway(folder / "data") as found:
        for stream, batch in (("all", column("n", pa.array([1]))), ("places", column("pos", pa.array([{"x": 1.0}])))):
            assert post(found, ipc(batch), stream=stream).status_code == 200
        yield found


def ipc(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for each in batches:
            writer.write_batch(each)
    return bytes(sink.getvalue())


def column(name: str, array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], [name])


def with_count(before: int, after: int, body: bytes) -> bytes:
    """Say another number of rows, wherever a message says one."""
    assert struct.pack("<q", before) in body
    return body.replace(struct.pack("<q", before), struct.pack("<q", after))


def patched(body: bytes, before: bytes, after: bytes) -> bytes:
    assert body.count(before) >= 1, body
    assert len(before) == len(after)
    return body.replace(before, after)


def ingest_pid(running: Running) -> int:
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    of_threads = [each.read_text().split() for each in Path(f"/proc/{running.process.pid}/task").glob("*/children")]
    found = {int(each) for each in [*children, *(child for some in of_threads for child in some)]}
    (pid,) = found
    return pid


def peak_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def stored_bytes(running: Running) -> int:
    return sum(each.stat().st_size for each in (running.data / "log").rglob("*") if each.is_file())


def post(running: Running, body: bytes, mode: str = "all", stream: str = "all") -> httpx.Response:
    with running.client() as http:
        return http.post(f"/v1/streams/{stream}/events?mode={mode}", content=body, headers={"content-type": ARROW})


def stream_of(lie: str) -> str:
    return "places" if "struct" in lie and "list" not in lie else "all"


ROWS = 1_237
TEXTS = ipc(column("text", pa.array([f"{n:04}" for n in range(ROWS)])))
LISTS = ipc(column("tags", pa.array([["aaa", "bbb"], ["ccc"], []] * 3)))
OFFSETS = struct.pack("<4i", 0, 4, 8, 12)


def _overlapping_views() -> bytes:
    long = b"x" * 1_000_000
    view = struct.pack("<i4sii", len(long), long[:4], 0, 0)
    buffers = [None, pa.py_buffer(view * 50_000), pa.py_buffer(long)]
    return ipc(column("text", pa.Array.from_buffers(pa.string_view(), 50_000, buffers)))


def _dictionary(value: str, indices: list[int]) -> bytes:
    array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array([value]), safe=False)
    return ipc(column("text", array))


def _deltas() -> bytes:
    kind = pa.dictionary(pa.int8(), pa.string())
    first = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["a"])).cast(kind)
    second = pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), pa.array(["a", "b"])).cast(kind)
    return ipc(column("text", first), column("text", second), emit_dictionary_deltas=True)


def _deep(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def _list_of(item: pa.DataType, count: int) -> bytes:
    """One row: a list of `count` items that take no bytes."""
    offsets = pa.py_buffer(struct.pack("<2i", 0, count))
    if pa.types.is_null(item):
        items = pa.nulls(count)
    else:
        items = pa.Array.from_buffers(item, count, [None], children=[pa.array([], pa.int8())] * item.num_fields)
    array = pa.Array.from_buffers(pa.list_(item), 1, [None, offsets], children=[items])
    return ipc(column("tags", array))


def _zero_length(count: int) -> bytes:
    batch = column("n", pa.array([], pa.int64()))
    whole = ipc(batch)
    one = ipc(batch, batch)
    message = one[len(whole) - 8 : len(one) - 8]
    return whole[:-8] + message * count + whole[-8:]


LIES: dict[str, Callable[[], bytes]] = {
    "more rows than the buffers hold": lambda: with_count(ROWS, 90_000, TEXTS),
    "a negative number of rows": lambda: with_count(ROWS, -5, TEXTS),
    "more rows than fit in 64 bits of memory": lambda: with_count(ROWS, 2**62, TEXTS),
    "more numbers than the buffer holds": lambda: with_count(ROWS, 90_000, ipc(column("n", pa.array(range(ROWS))))),
    "more bits than the buffer holds": lambda: with_count(ROWS, 99_000, ipc(column("on", pa.array([True] * ROWS)))),
    "an offset beyond the buffer": lambda: patched(TEXTS, OFFSETS, struct.pack("<4i", 0, 4, 8_000_000, 12)),
    "a negative offset": lambda: patched(TEXTS, OFFSETS, struct.pack("<4i", 0, -4, 8, 12)),
    "a first offset that is negative": lambda: patched(TEXTS, OFFSETS, struct.pack("<4i", -64, 4, 8, 12)),
    "offsets that go back": lambda: patched(TEXTS, OFFSETS, struct.pack("<4i", 0, 8, 4, 12)),
    "a list's offset beyond its items": lambda: patched(
        LISTS, struct.pack("<4i", 0, 2, 3, 3), struct.pack("<4i", 0, 2, 3_000, 3_000)
    ),
    "an index beyond the dictionary": lambda: _dictionary("a", [0, 7, 100_000]),
    "a negative index": lambda: _dictionary("a", [0, -1]),
    "text that is not UTF-8": lambda: patched(TEXTS, b"0000000100020003", b"0000\xff\xfe\xff\xff00020003"),
    "a surrogate": lambda: patched(TEXTS, b"00000001", b"0\xed\xa0\x800001"),
    "compressed by lz4": lambda: ipc(column("n", pa.array([0] * 90_000)), compression="lz4"),
    "compressed by zstd": lambda: ipc(column("text", pa.array(["a" * 1_000] * 90_000)), compression="zstd"),
    "a null column of fifty million rows": lambda: ipc(column("n", pa.nulls(50_000_000))),
    "a null column": lambda: ipc(column("n", pa.nulls(3))),
    "a list of nulls": lambda: _list_of(pa.null(), 2**31 - 1),
    "a list of empty structs": lambda: _list_of(pa.struct([]), 2**31 - 1),
    "lists of fixed size 0": lambda: ipc(
        column("tags", pa.array([[]] * 9, pa.list_(pa.string(), 0))),
    ),
    "a list of more bits than it may have": lambda: ipc(column("many", pa.array([[True] * 60_000_000]))),
    "a dictionary that expands to gigabytes": lambda: _dictionary("x" * 1_000_000, [0] * 99_000),
    "views that expand to gigabytes": _overlapping_views,
    "delta dictionaries": _deltas,
    "zero-length batches by the thousand": lambda: _zero_length(100_000),
    "more rows than a request may have": lambda: ipc(column("on", pa.array([True] * 100_001))),
    "run-end encoded": lambda: ipc(column("n", pa.RunEndEncodedArray.from_arrays([90_000], pa.array([1])))),
    "list views": lambda: ipc(column("tags", pa.array([["a"]], pa.list_view(pa.string())))),
    "a dense union": lambda: ipc(
        column("n", pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]))
    ),
    "a sparse union": lambda: ipc(column("n", pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]))),
    "an extension type": lambda: ipc(
        column("text", pa.ExtensionArray.from_storage(pa.json_(pa.utf8()), pa.array(["1"])))
    ),
    "a map": lambda: ipc(column("tags", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())))),
    "binary for text": lambda: ipc(column("text", pa.array([b"a"]))),
    "views inside a list": lambda: ipc(column("tags", pa.array([["a"]], pa.list_(pa.string_view())))),
    "a dictionary inside a list": lambda: ipc(
        column("tags", pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))))
    ),
    "lists nested sixty deep": lambda: ipc(column("tags", pa.nulls(1, _deep(60)))),
    "a column that is there twice": lambda: ipc(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])),
    "ten thousand columns": lambda: ipc(
        pa.RecordBatch.from_arrays([pa.array([1])] * 10_000, [f"c{n}" for n in range(10_000)])
    ),
    "an attribute twice in a struct": lambda: ipc(
        column("pos", pa.StructArray.from_arrays([pa.array([1.0]), pa.array([2.0])], ["x", "x"]))
    ),
    "an unknown attribute in a struct": lambda: ipc(
        column("pos", pa.StructArray.from_arrays([pa.array([1.0]), pa.nulls(1)], ["x", "y"]))
    ),
    "rows without columns": lambda: ipc(pa.RecordBatch.from_struct_array(pa.array([{}, {}, {}], pa.struct([])))),
    "a body that is cut": lambda: TEXTS[: len(TEXTS) // 2],
}


@pytest.mark.parametrize("lie", LIES)
def test_lie_is_refused_and_costs_little(running: Running, lie: str) -> None:
    body = LIES[lie]()
    pid, before = ingest_pid(running), stored_bytes(running)
    peak = peak_kb(pid)
    for mode in ("all", "partial"):
        begun = time.monotonic()
        answer = post(running, body, mode, stream_of(lie))
        assert answer.status_code in (400, 413), answer.text[:300]
        assert time.monotonic() - begun < MAX_ANSWER_S
        assert len(answer.content) < 10_000
    assert ingest_pid(running) == pid, "the ingest process has died"
    assert stored_bytes(running) == before
    assert peak_kb(pid) - peak < MAX_GROWTH_KB
    honest = post(running, ipc(column("n", pa.array([1]))))
    assert (honest.status_code, honest.json()["accepted"]) == (200, 1)


def test_wrong_null_counts_are_refused(running: Running) -> None:
    """A wrong null count must not make the bytes of a null visible as a value."""
    body = ipc(column("n", pa.array([7, None, 9] * 400)))
    node = struct.pack("<2q", 1_200, 400)
    for count in (1, 1_200, 1_201, -7):
        lie = patched(body, node, struct.pack("<2q", 1_200, count))
        assert post(running, lie).status_code == 400
    unknown = patched(body, node, struct.pack("<2q", 1_200, -1))  # -1: the reader is to count them
    assert post(running, unknown).json()["accepted"] == 1_200


def test_large_metadata_is_read_quickly(running: Running) -> None:
    batch = column("n", pa.array([1])).replace_schema_metadata({b"k": b"v" * 10_000_000})
    begun = time.monotonic()
    answer = post(running, ipc(batch))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    assert time.monotonic() - begun < MAX_ANSWER_S


def test_messages_say_what_to_do(running: Running) -> None:
    said = {name: post(running, LIES[name](), stream=stream_of(name)).json()["detail"] for name in _MESSAGES}
    for name, expected in _MESSAGES.items():
        assert expected in said[name], said[name]


_MESSAGES = {
    "compressed by lz4": "expected an Arrow stream whose buffers are not compressed: write it with compression=None",
    "a null column": "column 'n': Arrow's null type has no values; leave it out, or cast it to int64",
    "more rows than a request may have": "expected at most 100,000 rows in one Arrow body, not 100,001 or more: send",
    "delta dictionaries": "expected whole dictionaries, not delta dictionaries",
    "zero-length batches by the thousand": "expected at most 4,096 batches in an Arrow stream: use larger ones",
    "a dictionary that expands to gigabytes": "column 'text': its texts take 99,000,000,000 bytes, and 67,108,864 are",
    "a list of more bits than it may have": "values in one Arrow body",
    "an unknown attribute in a struct": "column 'pos': unknown attribute 'y'",
    "an attribute twice in a struct": "column 'pos': expected once, attribute 'x'",
    "a body that is cut": "expected an Arrow IPC stream: ",
    "rows without columns": "expected an Arrow stream with at least one column",
}


def test_honest_bodies_are_taken(running: Running) -> None:
    for array in (
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array(["a", "b" * 100], pa.string_view()),
        pa.array(["a", None], pa.large_string()),
    ):
        assert post(running, ipc(column("text", array))).json()["accepted"] == 2
    many = ipc(column("n", pa.array(range(100_000))))
    assert post(running, many).json()["accepted"] == 100_000
