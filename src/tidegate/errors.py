"""Every error that Tidegate raises on purpose, as one tree.

A branch per party who can act on it: the author of a filter, of a schema, the
producer of an event, whoever installed the software. Each error shows the
offending value, the place and what was expected there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice


class TidegateError(Exception):
    """The base of every deliberate error."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a filter's or an expression's text, and where."""

    at: int
    """Offset of the offending text, in characters from the start."""
    message: str
    """What is wrong, or what was expected instead."""
    length: int = 1
    """How many characters the caret underlines."""


class LanguageError(TidegateError):
    """Text in one of our languages that can't be used, with every problem found; its author can mend it."""

    def __init__(self, text: str, problems: Sequence[Problem]) -> None:
        self.text = text
        self.problems = tuple(sorted(problems, key=lambda p: p.at))
        super().__init__(_report(text, self.problems))

    @property
    def position(self) -> int:
        """Offset of the first problem in `text`."""
        return self.problems[0].at

    @property
    def expected(self) -> str:
        """What the first problem expected."""
        return self.problems[0].message.removeprefix("expected ")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.text, self.problems)


class FilterError(LanguageError):
    """A filter that can't be used.

    >>> print(FilterSyntaxError("speed >", at=7, expected="a value or a field"))
    expected a value or a field
      speed >
             ^ expected a value or a field
    """


class ExpressionError(LanguageError):
    """An expression of a projection that can't be used: its syntax, names or types."""


class FilterSyntaxError(FilterError):
    """Text that is not a filter."""

    def __init__(self, text: str, at: int, expected: str, length: int = 1) -> None:
        super().__init__(text, [Problem(at, f"expected {expected}", length)])


class FilterTypeError(FilterError):
    """A filter that does not fit its schema: fields, types, labels, shapes."""


class FilterParameterError(FilterTypeError):
    """Parameters that are missing, too many, or of the wrong type."""


class UnsatisfiableFilter(FilterError):  # noqa: N818 - a name of the public surface
    """A filter that can never match, by its own predicates or by a constraint."""


class SemanticsUnavailable(FilterError):  # noqa: N818 - reads as the state it reports
    """A `~` predicate was evaluated without a semantic space."""


class FilterNotNative(FilterError):  # noqa: N818 - reads as the state it reports
    """A filter that has no exact counterpart as a native Spark expression."""


class SchemaError(TidegateError):
    """A schema, or a part of one, that can't be understood."""

    def __init__(self, message: str, path: str = "") -> None:
        self.path = path
        self.message = message
        super().__init__(f"{path}: {message}" if path else message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.path)


@dataclass(frozen=True, slots=True)
class DefinitionProblem:
    """One thing that is wrong in the definition of a stream or service, and where."""

    path: str
    """`services.gps.pipeline[0].aggregate.window.length`."""
    message: str
    """The offending value, and what was expected instead."""
    file: str | None = None
    line: int | None = None
    """None: the definition did not come from a text."""

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}: " if self.line is None else f"{self.file}:{self.line}: "
        return f"{place}{self.path}: {self.message}" if self.path else f"{place}{self.message}"


class DefinitionError(TidegateError):
    """Definitions of streams or services that can't be used, with every problem found.

    >>> print(DefinitionError([DefinitionProblem("streams.gps.key", "unknown attribute 'vdi'", "city.yaml", 3)]))
    city.yaml:3: streams.gps.key: unknown attribute 'vdi'
    """

    def __init__(self, problems: Iterable[DefinitionProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


@dataclass(frozen=True, slots=True)
class Violation:
    """One value of an event that does not fit, and where."""

    path: str
    """The attribute as a filter would write it: `pos.x`, `wheels[3]`."""
    message: str
    """What is wrong with the value, shown, and what was expected."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class EventError(TidegateError):
    """An event that does not fit its schema, with every violation found."""

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__("\n".join(map(str, self.violations)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.violations,)


class ServiceError(TidegateError):
    """A service that can't run as it is defined."""


class MatcherError(TidegateError):
    """A subscription that a matcher has already, has not, or can't take."""


class RegistryError(TidegateError):
    """What a registry can't find, or won't do."""


class NotRegistered(RegistryError):  # noqa: N818 - reads as the state it reports
    """A stream, service, subscription or key that is not there."""


class VersionConflict(RegistryError):  # noqa: N818 - reads as the state it reports
    """A change of what another has changed meanwhile."""

    def __init__(self, what: str, given: int, present: int) -> None:
        self.what, self.given, self.present = what, given, present
        super().__init__(f"{what} has version {present} by now, not {given}: read it again")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.given, self.present)


class BreakingChange(RegistryError):  # noqa: N818 - reads as the state it reports
    """New versions of services that break those who subscribe to them, by service."""

    def __init__(self, changes: Mapping[str, Sequence[str]]) -> None:
        self.changes = {name: tuple(sentences) for name, sentences in changes.items()}
        lines = [f"services.{name}: {each}" for name, sentences in self.changes.items() for each in sentences]
        super().__init__("\n".join(["this breaks existing subscribers (force applies it all the same):", *lines]))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.changes,)


class SubscriptionError(TidegateError):
    """A subscription that can't be as it was asked for, with every problem found; its consumer can mend it."""

    def __init__(self, problems: Iterable[DefinitionProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


class SubscriptionEnded(TidegateError):  # noqa: N818 - nobody's mistake
    """A subscription that can't go on: its service is gone or has changed, or whoever has it may see it no more."""


class DiscoveryError(TidegateError):
    """A request for services, or a service, that discovery can't use, with every problem found.

    >>> print(DiscoveryError.one("limit", "expected 1 to 1,000, not 0"))
    limit: expected 1 to 1,000, not 0
    """

    def __init__(self, problems: Iterable[DefinitionProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))

    @classmethod
    def one(cls, path: str, message: str) -> DiscoveryError:
        """One problem alone."""
        return cls([DefinitionProblem(path, message)])

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


class VectorError(TidegateError):
    """Vectors of another registry that can't be read; whoever sent them can mend it."""


class WebhookError(TidegateError):
    """An address that events can't be sent to; whoever has it can mend it."""


class LogError(TidegateError):
    """A stream, partition or record that a log can't take."""


class LogUnreachable(LogError):  # noqa: N818 - reads as the state it reports
    """A log that can't be asked at the moment."""


class CursorError(LogError):
    """A text that is no cursor, or a cursor that is not of this stream."""


class IngestError(TidegateError):
    """Events that were sent to a raw stream and are not taken as they are."""


class MediaTypeError(IngestError):
    """A content type, or a charset, that nothing here reads; its sender can name another."""


class BodyError(IngestError):
    """A body that is not what its content type says, with the place; no event of it is taken."""


class BodyTooLarge(BodyError):  # noqa: N818 - reads as the state it reports
    """A body with more events, or that would expand to more bytes, than one request may have."""


class UnknownStream(IngestError):  # noqa: N818 - reads as the state it reports
    """A raw stream that is not defined."""


class StreamConflict(IngestError):  # noqa: N818 - reads as the state it reports
    """A raw stream that has its one writer, its source or another process: nobody else may append."""


class Overloaded(IngestError):  # noqa: N818 - reads as the state it reports
    """More than may be under way; nothing of it was taken, and it may be sent again later."""


class NotAcknowledged(IngestError):  # noqa: N818 - reads as the state it reports
    """Events that may be in the log or not: sent again with ids of their own, they are there once."""


class ClientError(TidegateError):
    """What a gateway answered to a client, or that it did not; its branches are in `tidegate.client`."""

    def __init__(self, message: str, status: int | None = None, document: Mapping[str, object] | None = None) -> None:
        self.message = message
        self.status = status
        """Of the answer; None: there was none."""
        self.document = dict(document or {})
        """The problem document (RFC 9457), where the answer had one."""
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.status, self.document), self.__dict__


class SpaceError(TidegateError):
    """A semantic space, or a corpus to make one of, that can't be read; whoever made it can mend it."""


class FederationError(TidegateError):
    """A broker, link or message of a federation that can't be used; whoever runs the brokers can mend it."""


class LinkRefused(FederationError):  # noqa: N818 - reads as the state it reports
    """A link between brokers that would close a loop.

    >>> print(LinkRefused(("a", "c", "b", "a"), "b"))
    a link from a to c would close a loop: a - c - b - a, as b says
    """

    def __init__(self, loop: Sequence[str], by: str | None = None, *, is_up: bool = True) -> None:
        """`by` is the neighbour who tells of the path, if it is one alone; `is_up`: its link is."""
        self.loop, self.by, self.is_up = tuple(loop), by, is_up
        said = "" if by is None else f", as {by} says" if is_up else f", as {by} said while its link was up"
        super().__init__(f"a link from {loop[0]} to {loop[1]} would close a loop: {' - '.join(loop)}{said}")

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), is_up=self.is_up), (self.loop, self.by)


class SourceError(TidegateError):
    """A source of a raw stream that can't be understood, reached or read; its provider can mend it."""


class MissingDependency(TidegateError):  # noqa: N818 - reads as the state it reports
    """A part of Tidegate that is not installed, and how to get it."""

    def __init__(self, what: str, extra: str) -> None:
        self.what = what
        self.extra = extra
        super().__init__(f"{what} is not installed: pip install 'tidegate[{extra}]'")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.extra)


class EnvironmentProblem(TidegateError):  # noqa: N818 - reads as the state it reports
    """Something outside Python that is missing or unfit, and how to mend it."""


MAX_ERROR_CHARS = 1_000
"""The longest error text that a status shows: `_status` repeats it every second."""


def error_text(error: BaseException) -> str:
    """Say what happened in one bounded line; an error that is not ours is preceded by its type.

    >>> error_text(OSError(2, "No such file or directory"))
    'FileNotFoundError: [Errno 2] No such file or directory'
    """
    try:
        said = str(error).strip()
    except Exception:  # an error of Py4J asks the JVM for its text, which may be gone
        said = ""
    if not isinstance(error, TidegateError):
        first = next(iter(said.splitlines()), "")
        said = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return said if len(said) <= MAX_ERROR_CHARS else f"{said[: MAX_ERROR_CHARS - 3]}..."


_MAX_KNOWN, _MAX_WORD = 1_000, 100
"""Words that are looked at for a hint, and letters of the one that it is for: whoever sends it chooses both."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the nearest of some words, as the end of a message; nothing where none is near.

    >>> did_you_mean("sped", ["speed", "vid"])
    "; did you mean 'speed'?"
    """
    from rapidfuzz import process, utils

    some = list(islice(known, _MAX_KNOWN))
    best = process.extractOne(word[:_MAX_WORD], some, processor=utils.default_process, score_cutoff=60)
    return f"; did you mean {best[0]!r}?" if best else ""


_MAX_SHOWN = 20
"""Problems of one text that a message shows: a text of 16 KB may have thousands."""


def _report(text: str, problems: Sequence[Problem]) -> str:
    """Say what is wrong, then show each place with a caret under it."""
    headline = problems[0].message
    if len(problems) > 1:
        headline = f"{len(problems)} problems, the first: {headline}"
    shown = [_underline(text, problem) for problem in problems[:_MAX_SHOWN]]
    more = [f"  ... and {len(problems) - _MAX_SHOWN} more"] if len(problems) > _MAX_SHOWN else []
    return "\n".join([headline, *shown, *more])


def _underline(text: str, problem: Problem, context: int = 60) -> str:
    """Show the line of the problem, cut to what fits, with a caret below."""
    at = min(max(problem.at, 0), len(text))
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[begin : end if end >= 0 else len(text)]
    at -= begin
    left = max(0, at - context)
    right = min(len(line), at + context)
    shown = line[left:right].replace("\t", " ")
    before, after = "..." if left else "", "..." if right < len(line) else ""
    carets = "^" * max(1, min(problem.length, right - at))
    return f"  {before}{shown}{after}\n  {' ' * (len(before) + at - left)}{carets} {problem.message}"


def _rebuild(kind: type[LanguageError], text: str, problems: Sequence[Problem]) -> LanguageError:
    error = kind.__new__(kind)
    LanguageError.__init__(error, text, problems)
    return error
