"""Collects the problems of a filter, so that its author sees all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidegate.errors import FilterParameterError, FilterTypeError, Problem
from tidegate.filters.nodes import Span

T = TypeVar("T")


class ProblemCollector:
    """The problems that `typing.resolve` has found in one filter so far."""

    __slots__ = ("only_parameters", "problems", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self.only_parameters = True
        """False once a problem was found that no other parameters would solve."""

    def report(self, span: Span, message: str, *, parameter: bool = False) -> None:
        """Add a problem at a span of the text; `parameter` if the value of a parameter causes it."""
        self.only_parameters &= parameter
        self.problems.append(Problem(span[0], message, max(1, span[1] - span[0])))

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work`; None if it reported a problem, which is then forgotten."""
        before, only_parameters = len(self.problems), self.only_parameters
        result = work()
        if len(self.problems) == before:
            return result
        del self.problems[before:]
        self.only_parameters = only_parameters
        return None

    def raise_problems(self) -> None:
        """Raise `FilterParameterError` if parameters cause all problems, `FilterTypeError` if not; else do nothing."""
        if self.problems:
            error = FilterParameterError if self.only_parameters else FilterTypeError
            raise error(self.text, self.problems)
