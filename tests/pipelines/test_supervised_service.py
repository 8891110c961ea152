"""One service whose engine fails, hangs or works; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.pipelines import supervised_service
from tidegate.pipelines.engine import Engine, Job
from tidegate.pipelines.supervised_service import SupervisedService
from tidegate.registry import RegisteredService, ServiceRun
from tidegate.services.definitions import Service

SCHEMAS = {"gps": Schema({"vid": "string"})}


class FakeEngine:
    """Starts jobs that a test controls."""

    checkpoints = SimpleNamespace(place="here:/data")

    def __init__(self) -> None:
        self.start_error: BaseException | None = None
        self.may_return = Event()
        self.may_return.set()
        self.failure: str | None = None
        self.stopped: list[Any] = []

    def start(self, service: Service, _version: int, _inputs: Any, **_: Any) -> Job:
        self.may_return.wait(20)
        if self.start_error is not None:
            raise self.start_error
        plan = SimpleNamespace(mode="micro-batch", reason="a test")
        job = SimpleNamespace(service=service, partitions={}, started=0.0, compiled=SimpleNamespace(plan=plan))
        job.failure = lambda: self.failure
        return cast(Job, job)

    def is_ready(self, _job: Job) -> bool:
        return True

    def stop(self, job: Job) -> None:
        self.stopped.append(job)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    log = SegmentLog(tmp_path)
    yield log
    log.close()


def registered(version: int = 1) -> RegisteredService:
    return RegisteredService(Service("fast", ("gps",)), version, datetime(2026, 1, 1, tzinfo=UTC))


def supervised(engine: FakeEngine, log: SegmentLog) -> SupervisedService:
    return SupervisedService(registered(), cast(Engine, engine), log)


def test_service_waits_for_an_input_that_does_not_exist(log: SegmentLog) -> None:
    service = supervised(FakeEngine(), log)
    service.poll(SCHEMAS, may_start=True)
    assert service.is_blocked
    assert "waits for gps, which has not started yet" in str(service.status.error)
    log.create("gps")
    service.poll(SCHEMAS, may_start=True)
    service.poll(SCHEMAS, may_start=True)
    assert (service.status.state, service.status.mode, service.status.error) == ("running", "micro-batch", None)
    assert service.new_run == ServiceRun(1, "here:/data")


def test_service_does_not_start_while_an_earlier_one_of_its_name_stops(log: SegmentLog) -> None:
    log.create("gps")
    service = supervised(FakeEngine(), log)
    service.poll(SCHEMAS, may_start=False)
    assert (service.attempt, service.job) == (None, None)


@pytest.mark.parametrize("error", [ValueError("bad plan"), SystemExit(3)])
def test_start_that_raises_is_retried_and_counts_as_failing_after_the_second_time(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(supervised_service, "BACKOFF", SimpleNamespace(delay_s=lambda _: 0.0))
    log.create("gps")
    engine = FakeEngine()
    engine.start_error = error
    service = supervised(engine, log)
    service.poll(SCHEMAS, may_start=True)
    assert (service.status.state, service.status.restarts, service.is_failing) == ("restarting", 1, False)
    assert str(service.status.error).startswith(type(error).__name__)
    service.fail("again")
    assert service.is_failing


def test_query_that_fails_is_stopped_and_restarted_after_a_delay(log: SegmentLog) -> None:
    log.create("gps")
    engine = FakeEngine()
    service = supervised(engine, log)
    service.poll(SCHEMAS, may_start=True)
    engine.failure = "out of memory"
    service.poll(SCHEMAS, may_start=True)
    assert (service.status.state, service.status.error) == ("restarting", "out of memory")
    assert len(engine.stopped) == 1
    engine.failure = None
    service.poll(SCHEMAS, may_start=True)
    assert service.job is None, "the delay has not passed"


def test_job_of_a_start_that_was_cancelled_is_stopped(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_service, "START_WAIT_S", 0.01)
    log.create("gps")
    engine = FakeEngine()
    engine.may_return.clear()
    service = supervised(engine, log)
    service.poll(SCHEMAS, may_start=True)
    attempt = service.attempt
    assert attempt is not None
    service.stop()
    engine.may_return.set()
    assert attempt.wait(20)
    assert len(engine.stopped) == 1
    assert service.job is None


@pytest.mark.parametrize("change", ["version", "schema", "nothing"])
def test_changed_definition_or_input_schema_stops_the_query(log: SegmentLog, change: str) -> None:
    log.create("gps")
    engine = FakeEngine()
    service = supervised(engine, log)
    service.poll(SCHEMAS, may_start=True)
    schemas = {"gps": Schema({"vid": "string", "speed": "float64?"})} if change == "schema" else SCHEMAS
    service.update(registered(2 if change == "version" else 1), schemas)
    assert len(engine.stopped) == (0 if change == "nothing" else 1)
