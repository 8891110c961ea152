"""The process that appends: under load, killed, orphaned, closed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KILLS
from tests.ingress.http.kit import GPS, JSON, LINES, Broken, Stuck, gps, lines, streams
from tests.ingress.kit import events, until
from tests.polling import until_async
from tidegate.errors import BodyError, MediaTypeError, NotAcknowledged, Overloaded, UnknownStream
from tidegate.ingress.http import IngestReceipt, IngestSettings, IngestWorker
from tidegate.ingress.http.process import _groups
from tidegate.logs import EventLog, SegmentLog
from tidegate.services.definitions import Stream

STREAM = Stream("s", GPS, key="vid", partitions=2)
PATIENCE_S = 30.0


def opener(folder: Path) -> Callable[[], EventLog]:
    return partial(SegmentLog, folder / "log")


def with_worker(
    folder: Path,
    body: Callable[[IngestWorker], Coroutine[Any, Any, None]],
    open_log: Callable[[], EventLog] | None = None,
    **settings: Any,
) -> None:
    async def run() -> None:
        async with IngestWorker(open_log or opener(folder), IngestSettings(**settings)) as worker:
            worker.define(streams(STREAM))
            await asyncio.wait_for(body(worker), PATIENCE_S)

    asyncio.run(run())


def written(folder: Path) -> list[dict[str, Any]]:
    log = SegmentLog(folder / "log")
    try:
        return events(log, "s")
    finally:
        log.close()


def test_requests_are_answered_each_with_its_own(tmp_path: Path) -> None:
    async def body(worker: IngestWorker) -> None:
        asked = [worker.ingest("s", LINES, {}, lines(gps(n) for n in range(size))) for size in range(1, 40)]
        told = await asyncio.gather(*asked)
        assert [each.accepted for each in told] == list(range(1, 40))
        assert worker.is_ready
        large = lines(gps(n) for n in range(20_000))  # more than a socket holds
        assert (await worker.ingest("s", LINES, {}, large)).accepted == 20_000
        headers = {"ce-id": "e1", "CE-Source": "a", "ce-type": "b", "ce-specversion": "1.0", "accept": "*/*"}
        one = lines([gps(1)])
        assert (await worker.ingest("s", JSON, headers, one)).accepted == 1
        assert (await worker.ingest("s", JSON, headers, one)).duplicates == 1

    with_worker(tmp_path, body)
    assert len(written(tmp_path)) == sum(range(40)) + 20_001


def test_errors_are_raised_here(tmp_path: Path) -> None:
    async def body(worker: IngestWorker) -> None:
        with pytest.raises(MediaTypeError, match="expected one of application/json"):
            await worker.ingest("s", "text/csv", {}, b"")
        with pytest.raises(BodyError, match="at line 1, column 2"):
            await worker.ingest("s", JSON, {}, b"{")
        with pytest.raises(UnknownStream, match="no stream 't'"):
            await worker.ingest("t", JSON, {}, b"{}")
        worker.define(streams(STREAM, Stream("t", GPS)))
        assert (await worker.ingest("t", LINES, {}, lines([gps(1)]))).accepted == 1

    with_worker(tmp_path, body)


def test_close_finishes_what_was_sent(tmp_path: Path) -> None:
    async def run() -> list[IngestReceipt]:
        worker = IngestWorker(opener(tmp_path))
        worker.define(streams(STREAM))
        await worker.start()
        asked = [asyncio.create_task(worker.ingest("s", LINES, {}, lines([gps(n)]))) for n in range(50)]
        await asyncio.sleep(0)  # they are on their way
        closing = asyncio.create_task(worker.close())
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="closing"):
            await worker.ingest("s", LINES, {}, b"")
        await closing
        await worker.close()
        return await asyncio.gather(*asked)

    assert [each.accepted for each in asyncio.run(run())] == [1] * 50
    assert len(written(tmp_path)) == 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_process_group_does_not_end_the_worker(tmp_path: Path, number: signal.Signals) -> None:
    """A shell signals the whole process group. The gateway drains, and needs the worker until then."""

    async def body(worker: IngestWorker) -> None:
        assert (await worker.ingest("s", LINES, {}, lines([gps(1)]))).accepted == 1
        assert worker._link is not None
        process = worker._link.process
        process.send_signal(number)
        assert (await worker.ingest("s", LINES, {}, lines([gps(2)]))).accepted == 1
        assert worker._link.process is process

    with_worker(tmp_path, body)


def test_more_than_may_be_under_way_is_refused(tmp_path: Path) -> None:
    one = lines([gps(1)])

    async def body(worker: IngestWorker) -> None:
        asked = [asyncio.create_task(worker.ingest("s", LINES, {}, one)) for _ in range(3)]
        asked.append(asyncio.create_task(worker.ingest("s", LINES, {}, one)))
        await asyncio.sleep(0)
        asked[0].cancel()  # whoever goes away leaves the bytes under way
        with pytest.raises(Overloaded, match=r"bytes wait to be appended, and .* send the request again later"):
            await worker.ingest("s", LINES, {}, one)
        (tmp_path / "go").touch()
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, IngestReceipt) for each in told] == [False, True, True, True]
        assert (await worker.ingest("s", LINES, {}, one)).accepted == 1
        assert (await worker.ingest("s", LINES, {}, one * 10)).accepted == 10  # alone it may be large

    with_worker(tmp_path, body, partial(Stuck, tmp_path), in_flight_bytes=4 * len(one))


def test_waiting_requests_are_one_group() -> None:
    from queue import SimpleQueue

    waiting: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
    for n in range(5):
        waiting.put((n, b"1234"))
    waiting.put(None)
    assert [[n for n, _ in group] for group in _groups(waiting, 10)] == [[0, 1, 2], [3, 4]]


def test_process_that_can_not_start_is_restarted(tmp_path: Path) -> None:
    async def body(worker: IngestWorker) -> None:
        with pytest.raises(NotAcknowledged, match="the ingest process ended with exit code 1 before it was ready"):
            await worker.ingest("s", LINES, {}, lines([gps(1)]))
        with pytest.raises(Overloaded, match="the ingest process is starting; no event was appended"):
            await worker.ingest("s", LINES, {}, lines([gps(1)]))
        (tmp_path / "mended").touch()
        await until_async(lambda: worker.is_ready)
        assert (await worker.ingest("s", LINES, {}, lines([gps(1)]))).accepted == 1

    with_worker(tmp_path, body, partial(Broken, tmp_path), restart_s=0.01)


# Killed ----------------------------------------------------------------------------


async def insist(worker: IngestWorker, ids: Sequence[str], acknowledged: set[str], tries: Counter[str]) -> None:
    """Send a batch until it is acknowledged, as a producer does."""
    body = lines(gps(n, _id=id_) for n, id_ in enumerate(ids))
    while True:
        try:
            told = await worker.ingest("s", LINES, {}, body)
        except NotAcknowledged:
            tries["again"] += 1
        except Overloaded:
            await asyncio.sleep(0.01)  # a producer's pause, and no synchronisation
        else:
            assert told.accepted + told.duplicates == len(ids)
            acknowledged |= set(ids)
            return


def test_killed_under_load_what_was_acknowledged_is_there_once(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    tries: Counter[str] = Counter()

    async def produce(worker: IngestWorker, who: int, stop: asyncio.Event) -> None:
        n = 0
        while not stop.is_set():
            await insist(worker, [f"{who}:{n}:{m}" for m in range(20)], acknowledged, tries)
            n += 1

    async def body(worker: IngestWorker) -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for who in range(8):
                group.create_task(produce(worker, who, stop))
            for _ in range(KILLS):
                enough = len(acknowledged) + 600
                await until_async(lambda enough=enough: len(acknowledged) >= enough)  # type: ignore[misc]
                assert worker.pid is not None
                os.kill(worker.pid, signal.SIGKILL)
            enough = len(acknowledged) + 600
            await until_async(lambda: len(acknowledged) >= enough)
            stop.set()

    with_worker(tmp_path, body)
    ids = Counter(event["_id"] for event in written(tmp_path))
    assert tries["again"] > 0
    assert set(ids) == acknowledged
    assert set(ids.values()) == {1}


# Orphaned --------------------------------------------------------------------------

ORPHAN = """
import asyncio, functools, pathlib, sys
from tidegate.ingress.http import IngestWorker
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services.definitions import Stream

async def main():
    async with IngestWorker(functools.partial(SegmentLog, pathlib.Path(sys.argv[1]))) as worker:
        worker.define({"s": Stream("s", Schema({"n": "int64"}))})
        await worker.ingest("s", "application/json", {}, b'{"n":1}')
        print(worker.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())  # no guard: the process does not run its parent's script
"""


def is_running(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_worker_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ORPHAN)
    path = os.pathsep.join(each for each in sys.path if each)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    until(lambda: not is_running(pid))
    assert len(written(tmp_path)) == 1
