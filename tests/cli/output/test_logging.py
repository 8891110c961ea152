"""Log lines on standard error, as text and as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog

from tidegate.cli.output.logging import FORMAT, log_to_stderr, logger
from tidegate.errors import EnvironmentProblem


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    handlers, settings = list(logging.getLogger("tidegate").handlers), structlog.get_config()
    yield
    structlog.configure(**settings)
    logging.getLogger("tidegate").handlers = handlers


def test_log_is_text_by_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(FORMAT, raising=False)
    log_to_stderr()
    logger("tidegate.gateway").warning("a webhook has failed", subscription="sub_1", attempts=2)
    assert capsys.readouterr().err.endswith("a webhook has failed attempts=2 subscription=sub_1\n")


def test_log_is_json_by_environment_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FORMAT, "json")
    for _ in range(2):  # a second call adds no second handler
        log_to_stderr()
    logger("tidegate.gateway").warning("a webhook has failed", subscription="sub_ä", error=OSError("gone"))
    logger("tidegate.gateway").debug("below the level of the log")
    logging.getLogger("tidegate.ingress.http.worker").error("the process ended with %d", 9)
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
        "tidegate.ingress.http.worker",
    )
    assert "ValueError: why" in third["exception"]


def test_unknown_log_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORMAT, "xml")
    with pytest.raises(EnvironmentProblem, match="TIDEGATE_LOG: expected text or json, not 'xml'"):
        log_to_stderr()


def test_same_problem_is_logged_once_until_the_interval_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.cli.output.logging.REPEAT_INTERVAL_S", 0.0)
    monkeypatch.delenv(FORMAT, raising=False)
    log_to_stderr()
    for _ in range(2):
        logger("tidegate.x").warning("can't read", problem="no answer")
    assert capsys.readouterr().err.count("can't read") == 2  # an interval of 0 holds nothing back
    monkeypatch.setattr("tidegate.cli.output.logging.REPEAT_INTERVAL_S", 1e9)
    log_to_stderr()
    for problem in ("no answer", "no answer", "refused", "no answer"):
        logger("tidegate.x").warning("can't read", problem=problem)
        logger("tidegate.x").warning("audit", result="failed")
    written = capsys.readouterr().err
    assert written.count("problem='no answer'") == written.count("problem=refused") == 1
    assert written.count("audit") == 4  # a line without a problem is never held back
