"""All errors that Tidegate raises deliberately, as one tree.

Each branch is for one party that can fix the problem: the author of a filter or a schema, the producer of an event, the
operator of an installation. The message of an error has the offending value, its position and the expected value.
Errors can be pickled, since processes send them to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice


class TidegateError(Exception):
    """Base class of all deliberate errors."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in the text of a filter or an expression, with its position."""

    at: int
    """Offset of the offending text, in characters from the start."""
    message: str
    """The description of the problem, or the expected text."""
    length: int = 1
    """How many characters the caret underlines."""


class LanguageError(TidegateError):
    """Text of a filter or an expression that can't be used, with all its problems."""

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
    """A filter that can't be used, with all its problems.

    >>> print(FilterSyntaxError("speed >", at=7, expected="a value or a field"))
    expected a value or a field
      speed >
             ^ expected a value or a field
    """


class ExpressionError(LanguageError):
    """An expression of a projection with wrong syntax, names or types."""


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
    """A schema, or a part of one, that can't be used."""

    def __init__(self, message: str, path: str = "") -> None:
        self.path = path
        self.message = message
        super().__init__(f"{path}: {message}" if path else message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.path)


@dataclass(frozen=True, slots=True)
class DefinitionProblem:
    """One problem in the definition of a stream or service, with its position."""

    path: str
    """Path of the value, such as `services.gps.pipeline[0].aggregate.window.length`."""
    message: str
    """The offending value, and the expected one."""
    file: str | None = None
    line: int | None = None
    """None: the definition was not read from a YAML text."""

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}: " if self.line is None else f"{self.file}:{self.line}: "
        return f"{place}{self.path}: {self.message}" if self.path else f"{place}{self.message}"


class DefinitionError(TidegateError):
    """Definitions of streams or services that can't be used, with all their problems.

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
    """One value of an event that does not fit the schema, with its path."""

    path: str
    """The attribute as a filter would write it: `pos.x`, `wheels[3]`."""
    message: str
    """The offending value, and the expected one."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class EventError(TidegateError):
    """An event that does not fit its schema, with all violations."""

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__("\n".join(map(str, self.violations)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.violations,)


class ServiceError(TidegateError):
    """A service whose definition can't be run."""


class MatcherError(TidegateError):
    """A subscription that a matcher already has, does not have, or can't index."""


class RegistryError(TidegateError):
    """A request that the registry can't fulfil or refuses."""


class RegistryUnreachable(RegistryError):  # noqa: N818 - reads as the state it reports
    """A registry whose database can't be reached, is full or is locked now. The same request may succeed later."""


class NotRegistered(RegistryError):  # noqa: N818 - reads as the state it reports
    """A stream, service, subscription or key that does not exist."""


class LeaseLost(RegistryError):  # noqa: N818 - reads as the state it reports
    """A write that was refused because the writer's lease has ended: another process may do the work now."""


class VersionConflict(RegistryError):  # noqa: N818 - reads as the state it reports
    """A change based on an old version: another caller has changed the definition since."""

    def __init__(self, what: str, given: int, present: int) -> None:
        """`given` is the version that the change is based on, `present` the version in the registry."""
        self.what, self.given, self.present = what, given, present
        super().__init__(f"{what} has version {present} by now, not {given}: read it again")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.given, self.present)


class BreakingChange(RegistryError):  # noqa: N818 - reads as the state it reports
    """New versions that break subscribers of services or producers of raw streams, or that lose a service's state."""

    def __init__(
        self,
        changes: Mapping[str, Sequence[str]],
        streams: Mapping[str, Sequence[str]] | None = None,
        states: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`changes` has, for each service, a sentence per incompatible change; `streams` the same per raw stream.

        `states` has, for each service, the reasons why its state can't be used.
        """
        self.changes = {name: tuple(sentences) for name, sentences in changes.items()}
        self.streams = {name: tuple(sentences) for name, sentences in (streams or {}).items()}
        self.states = {name: tuple(sentences) for name, sentences in (states or {}).items()}
        lines: list[str] = []
        for kind, effect, broken in (
            ("streams", "this breaks existing producers", self.streams),
            ("services", "this breaks existing subscribers", self.changes),
            ("services", "this loses the state of services, such as open windows", self.states),
        ):
            if broken:
                lines.append(f"{effect} (force applies it all the same):")
                lines += [f"{kind}.{name}: {sentence}" for name, sentences in broken.items() for sentence in sentences]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.changes, self.streams, self.states)


class SubscriptionError(TidegateError):
    """A request for a subscription that can't be fulfilled, with all its problems."""

    def __init__(self, problems: Iterable[DefinitionProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


class EndedSubscription(TidegateError):  # noqa: N818 - a state, not a mistake
    """A subscription that has ended: its service was removed or changed, or its owner may no longer read it."""


class DiscoveryError(TidegateError):
    """A discovery request, or a service, that discovery can't use, with all its problems.

    >>> print(DiscoveryError.one("limit", "expected 1 to 1,000, not 0"))
    limit: expected 1 to 1,000, not 0
    """

    def __init__(self, problems: Iterable[DefinitionProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))

    @classmethod
    def one(cls, path: str, message: str) -> DiscoveryError:
        """Return an error with a single problem."""
        return cls([DefinitionProblem(path, message)])

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


class VectorError(TidegateError):
    """Bloom vectors of another registry that can't be read."""


class WebhookError(TidegateError):
    """A webhook address that events can't be sent to."""


class LogError(TidegateError):
    """An unknown stream or partition, an invalid record, or a log that fails."""


class LogUnreachable(LogError):  # noqa: N818 - reads as the state it reports
    """A log that does not answer at the moment. Says nothing about its streams: they may all be there."""


class StreamNotFound(LogError):  # noqa: N818 - reads as the state it reports
    """A stream that the log does not have: the log has answered, and said so."""


class CursorError(LogError):
    """A text that is not a cursor, or a cursor that does not belong to the stream."""


def is_permanent(error: LogError) -> bool:
    """Return True if the same request would fail again: the stream or the cursor is gone.

    All other errors of a log are temporary: a reader retries from the same cursor.

    >>> is_permanent(LogUnreachable("no answer")), is_permanent(StreamNotFound("no stream 'gps'"))
    (False, True)
    """
    return isinstance(error, StreamNotFound | CursorError)


class IngestError(TidegateError):
    """A request to ingest events that is refused."""


class MediaTypeError(IngestError):
    """A content type or charset that ingest does not support."""


class BodyError(IngestError):
    """A body that does not match its content type, with the position; none of its events is stored."""


class BodyTooLarge(BodyError):  # noqa: N818 - reads as the state it reports
    """A body with more events, or more bytes when expanded, than one request may have."""


class UnknownStream(IngestError):  # noqa: N818 - reads as the state it reports
    """A raw stream that is not defined."""


class StreamConflict(IngestError):  # noqa: N818 - reads as the state it reports
    """A raw stream whose only writer is its source or another process."""


class Overloaded(IngestError):  # noqa: N818 - reads as the state it reports
    """Too many requests at once. Nothing of this one was stored; the sender may retry later."""


class NotAcknowledged(IngestError):  # noqa: N818 - reads as the state it reports
    """Events that may or may not be stored. Sent again with the same ids, each is stored once."""


class ClientError(TidegateError):
    """An error answer of a gateway, or no answer. The subclasses are in `tidegate.client`."""

    def __init__(self, message: str, status: int | None = None, document: Mapping[str, object] | None = None) -> None:
        self.message = message
        self.status = status
        """HTTP status of the answer; None: there was no answer."""
        self.document = dict(document or {})
        """The problem document (RFC 9457) of the answer; empty if it had none."""
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.status, self.document), self.__dict__


class SpaceError(TidegateError):
    """A semantic space, or a corpus for building one, that can't be read."""


class FederationError(TidegateError):
    """A broker, link or message of a federation that can't be used."""


class LinkRefused(FederationError):  # noqa: N818 - reads as the state it reports
    """A link between brokers that would close a loop.

    >>> print(LinkRefused(("a", "c", "b", "a"), "b"))
    a link from a to c would close a loop: a - c - b - a, as b says
    """

    def __init__(self, loop: Sequence[str], by: str | None = None, *, is_up: bool = True) -> None:
        """`by` is the neighbour that reports the path `loop`, if it is only one; `is_up`: its link is up."""
        self.loop, self.by, self.is_up = tuple(loop), by, is_up
        reported = "" if by is None else f", as {by} says" if is_up else f", as {by} said while its link was up"
        super().__init__(f"a link from {loop[0]} to {loop[1]} would close a loop: {' - '.join(loop)}{reported}")

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), is_up=self.is_up), (self.loop, self.by)


class SourceError(TidegateError):
    """A source of a raw stream that is defined wrongly, or that can't be reached or read."""


class MissingDependency(TidegateError):  # noqa: N818 - reads as the state it reports
    """An optional dependency that is not installed, and the extra that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        self.what = what
        self.extra = extra
        super().__init__(f"{what} is not installed: pip install 'tidegate[{extra}]'")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.extra)


class EnvironmentProblem(TidegateError):  # noqa: N818 - reads as the state it reports
    """A problem of the environment (files, programs, profile, ports), and how to fix it."""


MAX_ERROR_CHARS = 1_000
"""Longest error text in a status: `_status` repeats it every second."""


def error_text(error: BaseException) -> str:
    """Return the text of an error, cut to `MAX_ERROR_CHARS`; for errors of other libraries their type and first line.

    >>> error_text(OSError(2, "No such file or directory"))
    'FileNotFoundError: [Errno 2] No such file or directory'
    """
    try:
        text = str(error).strip()
    except Exception:  # an error of Py4J asks the JVM for its text, and the JVM may have ended
        text = ""
    if not isinstance(error, TidegateError):
        first = next(iter(text.splitlines()), "")
        text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return text if len(text) <= MAX_ERROR_CHARS else f"{text[: MAX_ERROR_CHARS - 3]}..."


_MAX_KNOWN, _MAX_WORD = 1_000, 100
"""Limits for a hint, since clients can choose the number of known words and the length of the wrong one."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelt word, to append to a message; empty if no known word is similar.

    >>> did_you_mean("sped", ["speed", "vid"])
    "; did you mean 'speed'?"
    >>> did_you_mean("heart", ["to"])
    ''
    """
    from rapidfuzz import process, utils

    # A part of a long word is similar to any word of two letters.
    candidates = [each for each in islice(known, _MAX_KNOWN) if len(each) > 2 or len(word) < 5]
    best = process.extractOne(word[:_MAX_WORD], candidates, processor=utils.default_process, score_cutoff=60)
    return f"; did you mean {best[0]!r}?" if best else ""


_MAX_SHOWN = 20
"""Most problems in one message: a text of 16 KB may have thousands."""


def _report(text: str, problems: Sequence[Problem]) -> str:
    """Return the message of a LanguageError: a headline, then the line of each problem with a caret below."""
    headline = problems[0].message
    if len(problems) > 1:
        headline = f"{len(problems)} problems, the first: {headline}"
    shown = [_underline(text, problem) for problem in problems[:_MAX_SHOWN]]
    more = [f"  ... and {len(problems) - _MAX_SHOWN} more"] if len(problems) > _MAX_SHOWN else []
    return "\n".join([headline, *shown, *more])


def _underline(text: str, problem: Problem, context: int = 60) -> str:
    """Return the line of a problem, cut to `context` characters around it, with a caret below."""
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
