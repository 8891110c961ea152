"""What happens, as lines on standard error."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog

from tidegate.cli.logging import FORMAT, log_to_stderr, logger
from tidegate.errors import EnvironmentProblem


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers, settings = list(logging.getLogger("tidegate").handlers), structlog.get_config()
    yield
    structlog.configure(**settings)
    logging.getLogger("tidegate").handlers = handlers


def test_lines_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(FORMAT, raising=False)
    log_to_stderr()
    logger("tidegate.gateway").warning("a webhook has failed", subscription="sub_1", attempts=2)
    assert capsys.readouterr().err.endswith("a webhook has failed attempts=2 subscription=sub_1\n")


def test_lines_for_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(FORMAT, "json")
    for _ in range(2):  # told twice, it says all once
        log_to_stderr()
    logger("tidegate.gateway").warning("a webhook has failed", subscription="sub_ä", error=OSError("gone"))
    logger("tidegate.gateway").debug("nobody wants to know")
    logging.getLogger("tidegate.gateway.ingest.worker").error("the process ended with %d", 9)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("tidegate.delivery").exception("a pass has failed")
    first, second, third = map(json.loads, capsys.readouterr().err.splitlines())
    assert datetime.fromisoformat(first.pop("time")).tzinfo is not None
    assert first == {
        "event": "a webhook has failed",
        "level": "warning",
        "logger": "tidegate.gateway",
        "subscription": "sub_ä",
        "error": "gone",
    }
    assert (second["event"], second["level"], second["logger"]) == (
        "the process ended with 9",
        "error",
        "tidegate.gateway.ingest.worker",
    )
    assert "ValueError: why" in third["exception"]


def test_a_format_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORMAT, "xml")
    with pytest.raises(EnvironmentProblem, match="TIDEGATE_LOG: expected text or json, not 'xml'"):
        log_to_stderr()
