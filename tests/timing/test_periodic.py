"""Periodic work continues after errors, and ends when the caller stops it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tidegate.timing import periodic, periodic_in_thread


def test_task_repeats_the_action_and_reports_errors_until_cancelled() -> None:
    calls: list[int] = []
    errors: list[str] = []

    async def work() -> None:
        enough = asyncio.Event()

        async def action() -> None:
            calls.append(len(calls))
            if len(calls) == 5:
                enough.set()
            if len(calls) % 2:
                raise ValueError(str(len(calls)))

        task = asyncio.create_task(periodic(action, 0.001, lambda error: errors.append(str(error))))
        await enough.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert (calls[:5], errors[:2]) == ([0, 1, 2, 3, 4], ["1", "3"])


def test_task_without_an_error_handler_ends_with_the_error() -> None:
    async def action() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(periodic(action, 0.001))


def test_task_waits_for_the_interval_before_the_first_call() -> None:
    calls: list[int] = []

    async def action() -> None:
        calls.append(1)

    async def work() -> None:
        task = asyncio.create_task(periodic(action, 60.0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(work())
    assert calls == []


def test_thread_repeats_the_action_and_reports_errors_until_stopped() -> None:
    calls: list[int] = []
    errors: list[str] = []
    stop = threading.Event()

    def action() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            stop.set()
        raise ValueError(str(len(calls)))

    periodic_in_thread(action, 0.001, stop, lambda error: errors.append(str(error)))
    assert (calls, errors) == ([0, 1, 2], ["1", "2", "3"])


def test_stop_ends_the_wait_of_a_thread_at_once() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=periodic_in_thread, args=(lambda: None, 3_600.0, stop))
    thread.start()
    stop.set()
    thread.join(60.0)
    assert not thread.is_alive()


def test_thread_without_an_error_handler_ends_with_the_error() -> None:
    def action() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        periodic_in_thread(action, 0.001, threading.Event())
