"""`Filter`: text, schema and parameters as one immutable value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.errors import (
    EventError,
    FilterParameterError,
    MissingDependency,
    Problem,
    SemanticsUnavailable,
    Violation,
)
from tidegate.filters import covering, evaluate, satisfiable
from tidegate.filters.meaning import NO_SPACE, Meaning, Semantics
from tidegate.filters.nodes import Group, Node, Query, Semantic, predicates
from tidegate.filters.normalize import Normal, canonical, normalize, push_not_inwards
from tidegate.filters.parser import parse
from tidegate.filters.render import render
from tidegate.filters.typing import resolve
from tidegate.model.schema import Schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tidegate.filters.by_meaning import ByMeaning
    from tidegate.filters.thematic import Meant


class Filter:
    """An expression over the attributes of an event; immutable, hashable, safe to share between threads.

    With a schema the filter is checked when it is created. Without one, values are compared by their own types, and
    values that do not compare make a predicate unknown. Two filters are equal if they have the same canonical form:
    letter case, blanks, the order of terms, and whether a value came as a parameter do not matter.

    >>> fast = Filter("speed > %0 AND vid LIKE 'B%'", params=["60"])
    >>> fast.matches({"speed": 61.5, "vid": "B17"})
    True
    >>> str(fast.with_params(["80"]))
    "speed > 80 AND vid LIKE 'B%'"
    >>> Filter("speed > 50").covers(fast)
    True

    A filter with `~` is evaluated by `semantics`, a `Space` or another `Semantics`. A `Semantics` need not be
    thread-safe, so evaluate such filters in one thread at a time. Without one, the filter can be created, printed and
    compared.

    Raises `FilterSyntaxError`, `FilterTypeError`, `FilterParameterError` or `UnsatisfiableFilter`, all of them
    `FilterError`.
    """

    __slots__ = (
        *("_cache", "_parsed", "_pushed", "_query", "like_star", "meaning", "params", "schema", "strict_params"),
        "text",
    )

    text: str
    """The text that the filter was created from."""
    schema: Schema | None
    params: tuple[Any, ...]
    like_star: bool
    """True if `*` and `?` are also wildcards of LIKE."""
    strict_params: bool
    """True if more parameters than the text names are an error."""
    meaning: Meaning | None
    """How predicates with `~` are evaluated; None: they can't be."""
    _parsed: Query | None
    """The tree before parameters were put in; None without parameters, to save memory in large matchers."""
    _query: Query
    _pushed: Node
    """The tree without `Not`, which is evaluated."""
    _cache: dict[str, Any]

    def __init__(
        self,
        text: str,
        schema: Schema | Mapping[str, Any] | None = None,
        params: Sequence[Any] | None = None,
        *,
        like_star: bool = False,
        strict_params: bool = False,
        semantics: Semantics | Meaning | None = None,
    ) -> None:
        if schema is not None and not isinstance(schema, Schema):
            schema = Schema(schema)  # raises SchemaError if it is no dict of attributes
        meaning = Meaning.of(semantics)
        self._make(text, parse(text), schema, () if params is None else params, like_star, strict_params, meaning)

    def _make(
        self,
        text: str,
        parsed: Query,
        schema: Schema | None,
        params: Sequence[Any],
        like_star: bool,
        strict_params: bool,
        meaning: Meaning | None,
    ) -> None:
        if params.__class__ not in (tuple, list) and (isinstance(params, str) or not isinstance(params, Sequence)):
            params = _refuse_params(params)
        query = resolve(parsed, text, schema, params, like_star=like_star, strict_params=strict_params)
        pushed = push_not_inwards(query.root)
        satisfiable.check(query, pushed, text, schema)
        put = object.__setattr__
        put(self, "text", text)
        put(self, "schema", schema)
        put(self, "params", tuple(params))
        put(self, "like_star", like_star)
        put(self, "strict_params", strict_params)
        put(self, "meaning", meaning)
        put(self, "_parsed", parsed if params else None)
        put(self, "_query", query)
        put(self, "_pushed", pushed)
        put(self, "_cache", {})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Filter is immutable; create a new one to set {name}")

    # Evaluation ----------------------------------------------------------------

    def matches(self, event: Mapping[str, Any]) -> bool:
        """Return True if an event matches; an unknown result is no match.

        Raises `EventError` if the event is no mapping, `SemanticsUnavailable` for a filter with ~ without semantics; so
        do `truth`, `degree` and `mappings`.
        """
        try:
            test = self._cache["test"]
        except KeyError:
            test = _compile(self, "test", evaluate.matcher, "truth")
        if event.__class__ is not dict:
            _check_event(event)
        return test(event) is True

    def truth(self, event: Mapping[str, Any]) -> bool | None:
        """Return True, False, or None if the event lacks a value that decides."""
        _check_event(event)
        if self._query.is_semantic:
            return self.by_meaning.truth(event)
        return evaluate.truth(self._query.root, event)

    def degree(self, event: Mapping[str, Any]) -> float:
        """Return how well an event fits, 0 to 1; exact filters return 0 or 1."""
        grade = self._cache.get("grade") or _compile(self, "grade", evaluate.grader, "degree")
        _check_event(event)
        degree: float = grade(event)
        return degree

    def mask(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which events of an Arrow record batch match. Raises `MissingDependency` without pyarrow."""
        if self._query.is_semantic:
            return self.by_meaning.judged(batch)[0]
        mask: np.ndarray[Any, np.dtype[np.bool_]] = _columns().mask(self._pushed, batch)
        return mask

    def degrees(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return how well each event of an Arrow record batch fits, 0 to 1. Raises as `mask`."""
        if self._query.is_semantic:
            return self.by_meaning.judged(batch)[1]
        degrees: np.ndarray[Any, np.dtype[np.float64]] = _columns().degrees(self._pushed, batch)
        return degrees

    def judged(
        self, batch: pa.RecordBatch
    ) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], np.ndarray[Any, np.dtype[np.float64]]]:
        """Return `mask` and `degrees` of an Arrow record batch; faster than two calls. Raises as `mask`."""
        if self._query.is_semantic:
            return self.by_meaning.judged(batch)
        both: tuple[np.ndarray[Any, np.dtype[np.bool_]], np.ndarray[Any, np.dtype[np.float64]]]
        both = _columns().judged(self._pushed, batch)
        return both

    def mappings(self, event: Mapping[str, Any], k: int = 1) -> list[Meant]:
        """Return the `k` best mappings of predicates with ~ to an event's attributes, best first.

        Mappings below the threshold are included. The list is empty if the rest of the filter is not true, if a
        predicate corresponds to no attribute of the event, or if the filter has no ~.
        """
        _check_event(event)
        return self.by_meaning.mappings(event, k) if self._query.is_semantic else []

    @property
    def by_meaning(self) -> ByMeaning:
        """The evaluator of a filter with ~. Raises `SemanticsUnavailable` if the filter has no semantics."""
        evaluator = self._cache.get("meaning")
        if evaluator is None:
            if self.meaning is None:
                problems = [
                    Problem(n.span[0], NO_SPACE, max(1, n.span[1] - n.span[0]))
                    for n in _semantic_predicates(self._query.root)
                ]
                raise SemanticsUnavailable(self.text, problems)
            by = _by_meaning()
            parts = by.parts_of(self.canonical, self.text, self.meaning.least)
            evaluator = self._cache["meaning"] = by.ByMeaning(parts, self.schema, self.meaning)
        typed_evaluator: ByMeaning = evaluator
        return typed_evaluator

    def with_semantics(self, semantics: Semantics | Meaning | None) -> Filter:
        """Return this filter with other semantics; the text is not parsed again. Raises `MatcherError`."""
        copy = object.__new__(Filter)
        put = object.__setattr__
        for name in Filter.__slots__:
            put(copy, name, getattr(self, name))
        put(copy, "meaning", Meaning.of(semantics))
        put(copy, "_cache", {"canonical": self.canonical})
        return copy

    def require_evaluable(self) -> None:
        """Raise if predicates with ~ can't be evaluated: `SemanticsUnavailable`, or `FilterTypeError` for too many."""
        if self._query.is_semantic:
            _ = self.by_meaning

    # Parameters ----------------------------------------------------------------

    def with_params(self, params: Sequence[Any]) -> Filter:
        """Return this filter with other parameters; the text is not parsed again. Raises `FilterParameterError`."""
        copy = object.__new__(Filter)
        parsed = self._parsed or parse(self.text)
        copy._make(self.text, parsed, self.schema, params, self.like_star, self.strict_params, self.meaning)
        return copy

    # Meaning -------------------------------------------------------------------

    @property
    def tree(self) -> Query:
        """The typed tree with parameters put in; positions refer to `text`."""
        return self._query

    @property
    def pushed(self) -> Node:
        """The typed tree without `Not`: its predicates carry their negations."""
        return self._pushed

    @property
    def canonical(self) -> Query:
        """The tree that all equal filters share."""
        cached = self._cache.get("canonical")
        if cached is None:
            cached = self._cache["canonical"] = canonical(self._query)
        query: Query = cached
        return query

    @property
    def normal(self) -> Normal:
        """The alternatives of this filter, and the values that each allows every attribute."""
        cached = self._cache.get("normal")
        if cached is None:
            cached = self._cache["normal"] = normalize(self._query.root)
        normal: Normal = cached
        return normal

    def covers(self, other: Filter) -> bool:
        """Return True if every event that matches `other` matches this filter; False if that is unknown.

        Raises `TypeError` if `other` is no `Filter`.
        """
        if not isinstance(other, Filter):
            raise TypeError(f"expected a Filter to compare with, not {type(other).__name__}")
        competes = any(filter_.meaning is None or filter_.meaning.semantics.rivalry for filter_ in (self, other))
        return self == other or covering.covers(self._query, self.normal, other._query, other.normal, competes=competes)

    def __str__(self) -> str:
        """Return the canonical text; it parses back to an equal filter."""
        cached = self._cache.get("text")
        if cached is None:
            cached = self._cache["text"] = render(self.canonical)
        text: str = cached
        return text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return self is other or self.canonical == other.canonical

    def __hash__(self) -> int:
        cached = self._cache.get("hash")
        if cached is None:
            cached = self._cache["hash"] = hash(self.canonical)
        hashed: int = cached
        return hashed

    def __repr__(self) -> str:
        shown = f", params={list(self.params)!r}" if self.params else ""
        return f"Filter({self.text!r}{shown})"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.text, self.schema, self.params, self.like_star, self.strict_params, self.meaning)


def _rebuild(
    text: str,
    schema: Schema | None,
    params: tuple[Any, ...],
    star: bool,
    strict: bool,
    meaning: Meaning | None,
) -> Filter:
    return Filter(text, schema, params, like_star=star, strict_params=strict, semantics=meaning)


def _compile(filter_: Filter, name: str, make: Callable[[Node], Any], by_meaning: str) -> Any:
    """Return the evaluator of a filter, and store it in the filter's cache."""
    evaluator = getattr(filter_.by_meaning, by_meaning) if filter_.tree.is_semantic else make(filter_.pushed)
    filter_._cache[name] = evaluator
    return evaluator


def _semantic_predicates(root: Node) -> list[Semantic]:
    """Return the predicates with ~ of a tree, also those in fuzzy groups."""
    semantic: list[Semantic] = []
    for node in predicates(root):
        inner: tuple[Any, ...] = tuple(i.predicate for i in node.items) if isinstance(node, Group) else (node,)
        semantic.extend(predicate for predicate in inner if isinstance(predicate, Semantic))
    return semantic


def _columns() -> Any:
    """Return the module that evaluates Arrow batches. Raises `MissingDependency` in an install without pyarrow."""
    try:
        from tidegate.filters import columns
    except ImportError as exc:
        raise MissingDependency("pyarrow", "arrow") from exc
    return columns


def _by_meaning() -> Any:
    """Return the module that evaluates filters with ~. Raises `MissingDependency` in an install without pyarrow."""
    try:
        from tidegate.filters import by_meaning
    except ImportError as exc:
        raise MissingDependency("pyarrow", "arrow") from exc
    return by_meaning


def _check_event(event: Any) -> None:
    if not isinstance(event, Mapping):
        raise EventError([Violation("event", f"expected a dict of attributes, not {event!r:.60}")])


def _refuse_params(params: Any) -> Sequence[Any]:
    message = f"expected a list of parameters, not {params!r:.60}"
    raise FilterParameterError("", [Problem(0, message)])
