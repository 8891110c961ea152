"""Evaluates a typed tree on one event.

Each predicate becomes a closure that returns True, False or None (unknown). `Not` is pushed inwards first, so AND and
OR only ask whether their terms are True. Three-valued logic costs nothing unless `truth` is called.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tidegate.filters import areas, fuzzy, membership, patterns
from tidegate.filters.nodes import (
    And,
    Between,
    Compare,
    ComputedValue,
    Group,
    In,
    Inside,
    IsNull,
    Item,
    Literal,
    Member,
    Node,
    Not,
    Operand,
    Or,
    Path,
    Pattern,
    Predicate,
    StrLike,
    predicates,
)
from tidegate.filters.normalize import area_numbers, opposite
from tidegate.filters.tokens import MAX_BYTES
from tidegate.filters.values import (
    KINDS,
    EventDict,
    Moment,
    ValueReader,
    is_missing,
    is_plain,
    number_reader,
    plain,
    raw_reader,
    reader,
    text_reader,
)
from tidegate.model import timestamps
from tidegate.model.types import Enum, Type

Truth = bool | None
Test = Callable[[EventDict], Truth]
Grade = Callable[[EventDict], float | None]

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_MEETS: dict[str, frozenset[type]] = {
    "bool": frozenset({bool, int}),
    "int": frozenset({bool, int, float}),
    "float": frozenset({int, float}),
    "string": frozenset({str}),
    "time": frozenset({int}),
}
"""Classes of value that a literal compares with; a comparison with any other is unknown."""


# The whole ---------------------------------------------------------------------


def matcher(node: Node) -> Test:
    """Return a test of a tree without `Not` that is True exactly where the tree is true."""
    match node:
        case And(terms):
            tests = []
            for term in terms:
                tests.append(matcher(term))
            return _all(tests)
        case Or(terms):
            tests = []
            for term in terms:
                tests.append(matcher(term))
            return _any(tests)
    assert not isinstance(node, Not)
    return test(node)


def _all(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda event: first(event) and second(event)

    def every(event: EventDict) -> Truth:
        for test_ in tests:  # noqa: SIM110 - all() with a generator takes twice the time
            if not test_(event):
                return False
        return True

    return every


def _any(tests: list[Test]) -> Test:
    def some(event: EventDict) -> Truth:
        for test_ in tests:  # noqa: SIM110 - any() with a generator takes twice the time
            if test_(event):
                return True
        return False

    return some


def truth(root: Node, event: EventDict) -> Truth:
    """Return the truth of a tree for an event in three-valued logic; None is unknown."""
    return truth_by(root, lambda node: test(node)(event))


def truth_by(root: Node, verdict: Callable[[Predicate], Truth]) -> Truth:
    """Return the truth of a tree, given the verdict of each predicate."""
    match root:
        case And(terms) | Or(terms):
            absorbing = isinstance(root, Or)
            unknown = False
            for term in terms:
                term_truth = truth_by(term, verdict)
                if term_truth is absorbing:
                    return absorbing
                unknown |= term_truth is None
            return None if unknown else not absorbing
        case Not(term):
            term_truth = truth_by(term, verdict)
            return None if term_truth is None else not term_truth
    return verdict(root)


def grader(pushed: Node) -> Callable[[EventDict], float]:
    """Return a function that computes the degree of an event for a tree without `Not`.

    AND is the minimum of its terms, OR the maximum. An unknown predicate has degree 0, negated or not, and so has a
    filter whose result is unknown.
    """
    if not any(isinstance(node, Group) for node in predicates(pushed)):
        matches = matcher(pushed)
        return lambda event: 1.0 if matches(event) else 0.0
    # Keyed by identity: hashing a tree takes longer than grading an event.
    tests = {id(node): test(node) for node in predicates(pushed)}
    grades = {id(node): group_grade(node) for node in predicates(pushed) if isinstance(node, Group)}

    def degree(event: EventDict) -> float:
        if truth_by(pushed, lambda node: tests[id(node)](event)) is None:
            return 0.0
        return _degree(pushed, lambda node: _leaf_degree(node, event))

    def _leaf_degree(node: Predicate, event: EventDict) -> float:
        if isinstance(node, Group):
            grade = grades[id(node)](event)
            return 0.0 if grade is None else 1.0 - grade if node.negated else grade
        return 1.0 if tests[id(node)](event) else 0.0

    return degree


def _degree(node: Node, leaf: Callable[[Predicate], float]) -> float:
    match node:
        case And(terms):
            lowest = 1.0
            for term in terms:
                lowest = min(lowest, _degree(term, leaf))
            return lowest
        case Or(terms):
            highest = 0.0
            for term in terms:
                highest = max(highest, _degree(term, leaf))
            return highest
    assert not isinstance(node, Not)
    return leaf(node)


# Predicates --------------------------------------------------------------------


def test(node: Predicate) -> Test:
    """Return the test of one predicate."""
    match node:
        case Compare(path, relation, Literal() as other):
            return _compare(path, relation, other)
        case Compare(path, relation, Path() as other):
            return _compare_fields(path, relation, other)
        case Between(path, Literal() as low, Literal() as high, negated):
            return _between(path, low, high, negated)
        case In(path, values, negated):
            return _in(path, [value for value in values if isinstance(value, Literal)], negated)
        case IsNull(path, negated):
            return _is_null(path, negated)
        case Pattern():
            return _pattern(node)
        case StrLike():
            return _on_text(node.path, strlike_test(node), node.negated)
        case Inside():
            return _inside(node)
        case Group():
            return _group(node)
    raise AssertionError(node)


def _compare(path: Path, relation: str, literal: Literal) -> Test:
    compare = _RELATIONS[relation]
    value = comparable(literal, path.type)
    meets = _MEETS["int" if path.type is not None and path.type.kind == "enum" else literal.kind]
    # Without a schema, text in the filter may be compared with a time in the event.
    timed = _time_of(literal) if path.type is None else None

    def settle(seen: Any) -> Truth:
        """Compare a value that is not of the common classes."""
        if seen is None:
            return None
        seen = seen if seen.__class__ is Moment else plain(seen)
        if seen.__class__ in meets:
            return compare(seen, value) if seen == seen else None
        return compare(int(seen), timed) if timed is not None and seen.__class__ is Moment else None

    if isinstance(path, ComputedValue):
        compute = reader(path)
        return lambda event: settle(compute(event))
    if not is_plain(path.type):
        convert = reader(path)
        return lambda event: compare(seen, value) if (seen := convert(event)) is not None else None
    if len(path.parts) == 1:
        name = str(path.parts[0])

        def leaf(event: EventDict) -> Truth:
            seen = event.get(name)
            if seen.__class__ in meets:
                return compare(seen, value) if seen == seen else None
            return settle(seen)

        return leaf
    read = raw_reader(path)

    def deep(event: EventDict) -> Truth:
        seen = read(event)
        if seen.__class__ in meets:
            return compare(seen, value) if seen == seen else None
        return settle(seen)

    return deep


def _time_of(literal: Literal) -> int | None:
    return timestamps.from_text(str(literal.value)) if literal.kind == "string" else None


def comparable(literal: Literal, kind: Type | None) -> Any:
    """Return a literal as the number or text that its field's values are compared with."""
    if isinstance(kind, Enum) and isinstance(literal.value, str):
        return kind.labels.index(literal.value)
    return literal.value


def _compare_fields(path: Path, relation: str, other: Path) -> Test:
    compare = _RELATIONS[relation]
    left, right = reader(path), reader(other)

    def leaf(event: EventDict) -> Truth:
        one, two = left(event), right(event)
        if not compare_kinds(one, two) or one != one or two != two:
            return None
        return compare(one, two)

    return leaf


def compare_kinds(one: Any, two: Any) -> bool:
    """Return True if two values compare: the same kind, bool with int, or int with float."""
    a, b = one.__class__, two.__class__
    if a is b:
        return a in KINDS
    return (a is int and b in (bool, float)) or (b is int and a in (bool, float))


def _between(path: Path, low: Literal, high: Literal, negated: bool) -> Test:
    above, below = _compare(path, ">=", low), _compare(path, "<=", high)

    def leaf(event: EventDict) -> Truth:
        one, two = above(event), below(event)
        if one is None or two is None:
            return None
        return (one and two) is not negated

    return leaf


def _in(path: Path, values: list[Literal], negated: bool) -> Test:
    """Return the test of IN: True if a value is equal, unknown if the event's value does not compare with all."""
    enum = path.type is not None and path.type.kind == "enum"
    by_class: dict[type, tuple[frozenset[Any], bool]] = {}
    for cls in (bool, int, float, str):
        met = [value for value in values if cls in _MEETS["int" if enum else value.kind]]
        by_class[cls] = frozenset(comparable(value, path.type) for value in met), len(met) == len(values)
    if path.type is None:
        times = [micros for value in values if (micros := _time_of(value)) is not None]
        by_class[Moment] = frozenset(map(Moment, times)), len(times) == len(values)
    read = reader(path)

    def leaf(event: EventDict) -> Truth:
        seen = read(event)
        members, whole = by_class.get(seen.__class__, (frozenset(), False))
        if seen != seen:
            return None
        if seen in members:
            return not negated
        return negated if whole else None

    return leaf


def _is_null(path: Path, negated: bool) -> Test:
    read = raw_reader(path)

    def leaf(event: EventDict) -> Truth:
        return is_missing(read(event)) is not negated

    return leaf


def _pattern(node: Pattern) -> Test:
    if isinstance(node.pattern, Literal) and isinstance(node.subject, Path):
        return _on_text(node.subject, pattern_test(node), node.negated)
    subject, pattern = _text_reader(node.subject), _text_reader(node.pattern)
    like = node.operator == "LIKE"

    def leaf(event: EventDict) -> Truth:
        text, own_pattern = subject(event), pattern(event)
        if text.__class__ is not str or own_pattern.__class__ is not str or len(own_pattern) > MAX_BYTES:
            return None
        try:
            check = patterns.make_like(own_pattern, node.star) if like else patterns.match(own_pattern)
        except UnicodeEncodeError:
            return None
        fits = check(text) if check is not None else None
        return None if fits is None else fits is not node.negated

    return leaf


def pattern_test(node: Pattern) -> patterns.TextTest:
    """Return the test of a LIKE or MATCH with a literal, without its negation."""
    assert isinstance(node.pattern, Literal)
    text = str(node.pattern.value)
    check = patterns.like(text) if node.operator == "LIKE" else patterns.match(text)
    assert check is not None
    return check


def strlike_test(node: StrLike) -> patterns.TextTest:
    """Return the test of a STRLIKE, without its negation."""
    assert isinstance(node.text, Literal)
    text = str(node.text.value)
    if node.bound is None:
        return patterns.edits(text, patterns.default_edits(text))
    limit = fuzzy.number(node.bound.number)
    return patterns.similar(text, limit) if node.bound.unit == "SIMILARITY" else patterns.edits(text, int(limit))


def _text_reader(side: Operand) -> ValueReader:
    if isinstance(side, Path):
        return reader(side)
    assert isinstance(side, Literal)
    return lambda _: side.value


def _on_text(path: Path, check: patterns.TextTest, negated: bool) -> Test:
    read = reader(path)

    def leaf(event: EventDict) -> Truth:
        value = read(event)
        if value.__class__ is not str:
            return None
        fits = check(value)
        return None if fits is None else fits is not negated

    return leaf


def _inside(node: Inside) -> Test:
    longitude, latitude = number_reader(node.longitude), number_reader(node.latitude)
    contains = areas.contains(node.area.name, area_numbers(node))

    def leaf(event: EventDict) -> Truth:
        x, y = longitude(event), latitude(event)
        if x is None or y is None:
            return None
        return contains(x, y) is not node.negated

    return leaf


# Fuzzy groups ------------------------------------------------------------------


def _group(group: Group) -> Test:
    limits, grades = fuzzy.thresholds(group), _item_grades(group)

    def leaf(event: EventDict) -> Truth:
        memberships = grades(event)
        return (
            None
            if memberships is None
            else limits.reached(memberships, limits.degree(memberships)) is not group.negated
        )

    return leaf


def group_grade(group: Group) -> Grade:
    """Return a function that computes the degree of a group, without its negation; None if unknown."""
    limits, grades = fuzzy.thresholds(group), _item_grades(group)
    return lambda event: None if (memberships := grades(event)) is None else limits.degree(memberships)


def _item_grades(group: Group) -> Callable[[EventDict], list[float] | None]:
    """Return a function that computes the memberships of all items; None if any is unknown."""
    grades = [item_grade(item) for item in group.items]

    def read(event: EventDict) -> list[float] | None:
        memberships = []
        for grade in grades:
            mu = grade(event)
            if mu is None:
                return None
            memberships.append(mu)
        return memberships

    return read


def item_grade(item: Item) -> Grade:
    """Return a function that computes the membership of one item, with its negation."""
    match item.predicate:
        case Member(path, shape):
            read: ValueReader = number_reader(path)
            mu: Callable[[Any], float] = membership.membership(shape.name, fuzzy.shape_numbers(item.predicate))
            negated = item.negated
        case StrLike() as like:
            read, mu = text_reader(like.path), strlike_grade(like)
            negated = item.negated ^ like.negated
        case _:
            crisp = test(opposite(item.predicate) if item.negated else item.predicate)
            return lambda event: None if (holds := crisp(event)) is None else float(holds)

    def grade(event: EventDict) -> float | None:
        value = read(event)
        if value is None:
            return None
        return 1.0 - mu(value) if negated else mu(value)

    return grade


def strlike_grade(node: StrLike) -> Callable[[str], float]:
    """Return a function that computes the similarity to the text; 0 beyond a bound of the filter."""
    assert isinstance(node.text, Literal)
    similarity = patterns.similarity(str(node.text.value))
    if node.bound is None:
        return similarity
    within = strlike_test(node)
    return lambda value: similarity(value) if within(value) else 0.0
