"""Errors of the runner's steps are logged, and the same one not at every step."""

from __future__ import annotations

from structlog.testing import capture_logs

from tidegate.pipelines.guard import Guard


def fail() -> None:
    raise OSError("disk full")


def test_error_of_a_step_is_logged_once_and_not_raised() -> None:
    guard = Guard()
    with capture_logs() as logs:
        for _ in range(3):
            guard.run("the status can't be written", fail)
    assert [(entry["event"], entry["problem"]) for entry in logs] == [
        ("the status can't be written", "OSError: disk full")
    ]


def test_another_problem_of_the_same_step_is_logged_at_once() -> None:
    guard = Guard()
    with capture_logs() as logs:
        for problem in ("a", "b", "b"):
            guard.warn("the registry can't be read", problem)
    assert [entry["problem"] for entry in logs] == ["a", "b"]
