"""Compiles filters to native Spark columns.

A filter becomes a column of Spark expressions that is true, false or null (unknown), so that real-time mode can run it.
Filters without an exact native counterpart (a pattern that is a field, a regular expression that Java can't run safely)
raise `FilterNotNative`; `where` then evaluates them over Arrow batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark

from tidegate.errors import FilterNotNative
from tidegate.expressions.like import spark_pattern
from tidegate.expressions.sql import node_sql
from tidegate.filters import Filter, areas, fuzzy, patterns
from tidegate.filters.evaluate import comparable
from tidegate.filters.membership import SLACK
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
    Or,
    Path,
    Pattern,
    Predicate,
    StrLike,
    paths,
    predicates,
)
from tidegate.filters.normalize import area_numbers, opposite, push_not_inwards
from tidegate.filters.numbers import float_bound, whole_bound
from tidegate.model.types import Enum, Scalar
from tidegate.pipelines.nativeness import native_problem
from tidegate.pipelines.regex import to_java
from tidegate.pipelines.types import from_spark

Relate = Callable[[Any, Any], Any]

_RELATIONS: dict[str, Relate] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_WIDE = ("int64", "uint64")


def where(frame: DataFrame, filter_: Filter) -> DataFrame:
    """Return the rows that match. Uses a native column if there is an exact one, otherwise Arrow batches."""
    typed = _typed(frame, filter_)
    try:
        return frame.where(truth(typed))
    except FilterNotNative:
        return frame.where(truth_by_arrow(frame, typed))


def _typed(frame: DataFrame, filter_: Filter) -> Filter:
    """Return the filter, with the schema of the frame if it has none."""
    if filter_.schema is not None:
        return filter_
    return Filter(filter_.text, from_spark(frame.schema), filter_.params, like_star=filter_.like_star)


def truth(filter_: Filter) -> Column:
    """Return a filter as a native column: true, false, or null if unknown. Raises FilterNotNative."""
    return _ColumnCompiler(filter_).node(push_not_inwards(filter_.tree.root))


def degree(filter_: Filter) -> Column:
    """Return the degree of a filter as a native column, 0 to 1. Raises FilterNotNative."""
    compiler = _ColumnCompiler(filter_)
    root = push_not_inwards(filter_.tree.root)
    return F.when(compiler.node(root).isNotNull(), compiler.degree(root)).otherwise(F.lit(0.0))


def truth_by_arrow(frame: DataFrame, filter_: Filter) -> Column:
    """Return any filter as a column that Python evaluates; in micro-batches only."""
    names = sorted({str(path.parts[0]) for node in predicates(filter_.tree.root) for path in paths(node)})
    if filter_.tree.is_semantic and filter_.schema is not None:  # any attribute may be the one that is meant
        names = [*(field.name for field in filter_.schema.root), "_themes"]

    def evaluate(rows: pa.Array) -> pa.Array:
        batch = pa.RecordBatch.from_arrays(rows.flatten(), names=[field.name for field in rows.type])
        return pa.array(filter_.mask(batch))

    columns = [F.col(_quoted(name)).alias(name) for name in names if name in frame.columns]
    run = F.arrow_udf(evaluate, spark.BooleanType())  # type: ignore[attr-defined]
    return run(F.struct(*columns)) if columns else F.lit(filter_.matches({}))


class _ColumnCompiler:
    """Compiles the predicates of one filter."""

    def __init__(self, filter_: Filter) -> None:
        problem = native_problem(filter_)
        if problem is not None:
            raise FilterNotNative(filter_.text, [problem])

    def node(self, node: Node) -> Column:
        match node:
            case And(terms):
                return reduce(Column.__and__, [self.node(term) for term in terms], F.lit(True))
            case Or(terms):
                return reduce(Column.__or__, [self.node(term) for term in terms], F.lit(False))
        return self.predicate(node)  # type: ignore[arg-type]

    def degree(self, node: Node) -> Column:
        match node:
            case And(terms):
                return _extreme(F.least, [self.degree(term) for term in terms], 1.0)
            case Or(terms):
                return _extreme(F.greatest, [self.degree(term) for term in terms], 0.0)
            case Group():
                degree_ = self.group_degree(node, self.grades(node))
                return F.coalesce(1.0 - degree_ if node.negated else degree_, F.lit(0.0))
        return F.when(self.node(node), 1.0).otherwise(0.0)

    # Predicates ----------------------------------------------------------------

    def predicate(self, node: Predicate) -> Column:
        match node:
            case Compare(path, relation, Literal() as other):
                return compare(path, relation, other)
            case Compare(path, relation, Path() as other):
                return compare_fields(path, relation, other)
            case Between(path, Literal() as low, Literal() as high, negated):
                return _signed(compare(path, ">=", low) & compare(path, "<=", high), negated)
            case In(path, values, negated):
                comparisons = [compare(path, "=", value) for value in values if isinstance(value, Literal)]
                return _signed(reduce(Column.__or__, comparisons), negated)
            case IsNull(path, negated):
                missing = raw(path).isNull()
                if path.type is not None and path.type.kind == "float":
                    missing = missing | F.isnan(raw(path))
                return _signed(missing, negated)
            case Pattern():
                return _signed(self.pattern(node), node.negated)
            case StrLike(path):
                return _signed(strlike(node), node.negated)
            case Inside():
                x, y = number(node.longitude), number(node.latitude)
                return _signed(inside(node.area.name, area_numbers(node), x, y), node.negated)
            case Group():
                return _signed(self.group(node), node.negated)
        raise AssertionError(node)

    def pattern(self, node: Pattern) -> Column:
        assert isinstance(node.subject, Path)
        assert isinstance(node.pattern, Literal)
        text, column = str(node.pattern.value), raw(node.subject)
        if node.operator == "LIKE":
            return column.like(spark_pattern(text))
        java = to_java(text)
        assert java is not None, "native_problem refuses it"
        return column.rlike(java)

    # Fuzzy groups --------------------------------------------------------------

    def grades(self, group: Group) -> list[Column]:
        return [self.item(item) for item in group.items]

    def item(self, item: Item) -> Column:
        match item.predicate:
            case Member(path, shape):
                grade = membership(shape.name, fuzzy.shape_numbers(item.predicate), number(path))
                return 1.0 - grade if item.negated else grade
            case StrLike() as like:
                grade = similarity(like)
                if like.bound is not None:
                    grade = F.when(strlike(like), grade).when(raw(like.path).isNotNull(), 0.0)
                return 1.0 - grade if item.negated ^ like.negated else grade
        crisp = opposite(item.predicate) if item.negated else item.predicate
        return self.predicate(crisp).cast("double")

    def group(self, group: Group) -> Column:
        grades, limits = self.grades(group), fuzzy.thresholds(group)
        reached = self.group_degree(group, grades) >= limits.alpha - SLACK
        for beta, grade in zip(limits.betas, grades, strict=True):
            reached = reached & (grade >= beta - SLACK)
        is_known = reduce(Column.__and__, [grade.isNotNull() for grade in grades])
        return F.when(is_known, reached)

    def group_degree(self, group: Group, grades: list[Column]) -> Column:
        limits = fuzzy.thresholds(group)
        if limits.minimum:
            is_known = reduce(Column.__and__, [grade.isNotNull() for grade in grades])
            return F.when(is_known, _extreme(F.least, grades, 1.0))
        total = reduce(Column.__add__, [w * grade for w, grade in zip(limits.weights, grades, strict=True)])
        return total / limits.total


def _related(relation: str, one: Column, other: Column) -> Column:
    column: Column = _RELATIONS[relation](one, other)
    return column


def _extreme(function: Callable[..., Column], columns: list[Column], empty: float) -> Column:
    """Return the least or greatest of any number of columns; Spark's functions need at least two."""
    if len(columns) < 2:
        return columns[0] if columns else F.lit(empty)
    return function(*columns)


def _signed(column: Column, negated: bool) -> Column:
    return ~column if negated else column


# Fields ------------------------------------------------------------------------


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def raw(path: Path) -> Column:
    """Return the column at a path; null beyond the end of an array or inside a null struct."""
    if isinstance(path, ComputedValue):
        assert path.root is not None
        return F.expr(node_sql(path.root))
    column = F.col(_quoted(str(path.parts[0])))
    for part in path.parts[1:]:
        column = F.get(column, F.lit(part)) if isinstance(part, int) else column.getField(part)
    return column


def _kind(path: Path) -> str:
    assert path.type is not None
    return path.type.kind


def number(path: Path) -> Column:
    """Return a number as a double, with null instead of NaN."""
    return _no_nan(raw(path).cast("double"))


def _no_nan(column: Column) -> Column:
    return F.when(~F.isnan(column), column)


def _position(path: Path, kind: Enum) -> Column:
    """Return the position of an enum's label; null for other texts."""
    labels = F.array(*[F.lit(label) for label in kind.labels])
    position = F.array_position(labels, raw(path))
    return F.when(position > 0, position - 1)


# Comparisons -------------------------------------------------------------------


def compare(path: Path, relation: str, literal: Literal) -> Column:
    """Compare a field with a value; agrees exactly with the other evaluators."""
    kind = path.type
    assert isinstance(kind, Scalar | Enum)
    value = comparable(literal, kind)
    if isinstance(kind, Enum):
        return _compare_labels(path, kind, relation, value)
    match kind.kind:
        case "string" | "char":
            return _related(relation, raw(path), F.lit(value))
        case "time":
            return _related(relation, F.unix_micros(raw(path)), F.lit(value))
        case "float":
            return _compare_float(number(path), relation, value)
        case "bool":
            return _compare_whole(raw(path).cast("int"), relation, value, Scalar("int32"))
    return _compare_whole(raw(path), relation, value, kind)


def _compare_labels(path: Path, kind: Enum, relation: str, value: Any) -> Column:
    """Compare labels by position. The labels that satisfy the comparison are computed here."""
    column = raw(path)
    fitting = [label for n, label in enumerate(kind.labels) if _RELATIONS[relation](n, value)]
    return F.when(column.isin(list(kind.labels)), column.isin(fitting) if fitting else F.lit(False))


def _compare_float(column: Column, relation: str, value: int | float) -> Column:
    bound, relation = float_bound(relation, value)
    if bound is None:
        return _known(column, relation == "<>")
    return _related(relation, column, F.lit(bound))


def _compare_whole(column: Column, relation: str, value: int | float, kind: Scalar) -> Column:
    bound, relation = whole_bound(relation, value)
    if bound is None:
        return _known(column, relation == "<>")
    low, high = (0, 2**64) if kind.name == "uint64" else (-(2**63), 2**63 - 1)
    if bound > high:
        return _known(column, relation in ("<", "<=", "<>"))
    if bound < low:
        return _known(column, relation in (">", ">=", "<>"))
    literal = F.lit(Decimal(bound)) if kind.name == "uint64" else F.lit(bound).cast("bigint")
    return _related(relation, column, literal)


def _known(column: Column, verdict: bool) -> Column:
    """Return the same verdict for every value, and null for null."""
    return F.when(column.isNotNull(), F.lit(verdict))


def compare_fields(path: Path, relation: str, other: Path) -> Column:
    """Compare two fields. Integers and floats are compared exactly."""
    kinds = {_kind(path), _kind(other)}
    if kinds == {"int", "float"}:
        sign = _sign(path, other) if _kind(path) == "int" else -_sign(other, path)
        return _related(relation, sign, F.lit(0))
    return _related(relation, _side(path), _side(other))


def _side(path: Path) -> Column:
    kind = path.type
    if isinstance(kind, Enum):
        return _position(path, kind)
    match _kind(path):
        case "float":
            return number(path)
        case "bool":
            return raw(path).cast("int")
        case "int":
            return raw(path).cast("decimal(20,0)")
    return raw(path)


def _sign(whole: Path, real: Path) -> Column:
    """Return -1, 0 or 1 if an integer is less than, equal to or greater than a float; null if either is null."""
    x, y = raw(whole), number(real)
    if str(whole.type) not in _WIDE:
        return F.signum(x.cast("double") - y)
    # A double of at least 2^63 is an integer. Subtract 2^63, so that the rest fits a long.
    half = float(2**63)
    floor = F.when(y < half, F.floor(y).cast("decimal(21,0)")).otherwise(
        F.floor(y - half).cast("decimal(21,0)") + F.lit(Decimal(2**63)).cast("decimal(21,0)")
    )
    exact = x.cast("decimal(21,0)")
    sign = F.when(exact < floor, -1).when(exact > floor, 1).when(y > F.floor(y), -1).otherwise(0)
    is_known = x.isNotNull() & y.isNotNull()
    return F.when(is_known, F.when(y >= float(2**64), -1).when(y < -half, 1).otherwise(sign))


# Text --------------------------------------------------------------------------


def _edits(node: StrLike) -> Column:
    assert isinstance(node.text, Literal)
    return F.levenshtein(raw(node.path), F.lit(str(node.text.value)))


def similarity(node: StrLike) -> Column:
    """Return 1 - d / max(length); 1 for two empty texts."""
    assert isinstance(node.text, Literal)
    text = raw(node.path)
    longest = F.greatest(F.length(text), F.lit(len(str(node.text.value))))  # ignores nulls
    alike = F.when(longest == 0, 1.0).otherwise(1.0 - _edits(node) / F.when(longest > 0, longest))
    return F.when(text.isNotNull(), alike)


def strlike(node: StrLike) -> Column:
    """Return whether a text is similar enough, without the negation."""
    assert isinstance(node.text, Literal)
    if node.bound is not None and node.bound.unit == "SIMILARITY":
        return similarity(node) >= fuzzy.number(node.bound.number) - SLACK
    text = str(node.text.value)
    budget = patterns.default_edits(text) if node.bound is None else int(fuzzy.number(node.bound.number))
    return _edits(node) <= budget


# Shapes and areas --------------------------------------------------------------


def membership(name: str, numbers: tuple[float, ...], x: Column) -> Column:
    """Return the formulas of `tidegate.filters.membership` as columns."""
    match name, numbers:
        case "TRAPEZOID", (a, b, c, d):
            return _trapezoid(a, b, c, d, x)
        case "TRIANGLE", (a, b, c):
            return _trapezoid(a, b, b, c, x)
        case "RECTANGLE", (a, b):
            return _trapezoid(a, a, b, b, x)
        case "BELL", (a, b, c):
            return 1.0 / (1.0 + F.pow(F.abs((x - c) / a), F.lit(2.0 * b)))
        case "GAUSS", (mean, sigma):
            t = (x - mean) / sigma
            return F.exp(t * t * -0.5)
        case "S", (a, b):
            return _s_curve(a, b, x)
        case "Z", (a, b):
            return _z_curve(a, b, x)
    raise AssertionError(name)


def _trapezoid(a: float, b: float, c: float, d: float, x: Column) -> Column:
    mu = F.when((x >= b) & (x <= c), 1.0).when((x <= a) | (x >= d), 0.0)
    if b > a:
        mu = mu.when(x < b, (x - a) / (b - a))
    return mu.when(x > c, (F.lit(d) - x) / (d - c)) if d > c else mu


def _s_curve(a: float, b: float, x: Column) -> Column:
    mu = F.when(x >= b, 1.0).when(x <= a, 0.0)
    if b > a:
        t = (x - a) / (b - a)
        mu = mu.when(t <= 0.5, t * t * 2.0).when(t > 0.5, 1.0 - (1.0 - t) * (1.0 - t) * 2.0)
    return mu


def _z_curve(a: float, b: float, x: Column) -> Column:
    mu = F.when(x <= a, 1.0).when(x >= b, 0.0)
    if b > a:
        t = (x - a) / (b - a)
        mu = mu.when(t <= 0.5, 1.0 - t * t * 2.0).when(t > 0.5, (1.0 - t) * (1.0 - t) * 2.0)
    return mu


def inside(name: str, numbers: tuple[float, ...], x: Column, y: Column) -> Column:
    """Return the tests of `tidegate.filters.areas` as columns; null if a coordinate is null."""
    match name, numbers:
        case "BOX", (west, south, east, north):
            across = (x >= west) & (x <= east)
            if west > east:
                across = ((x >= west) & (x <= 180)) | ((x >= -180) & (x <= east))
            is_inside = across & (y >= south) & (y <= north)
        case "CIRCLE", (longitude, latitude, metres):
            is_inside = _circle(longitude, latitude, metres, x, y)
        case _:
            is_inside = _polygon(areas.corners(numbers), x, y)
    return F.when(x.isNotNull() & y.isNotNull(), is_inside)


def _circle(longitude: float, latitude: float, metres: float, x: Column, y: Column) -> Column:
    x0, y0 = math.radians(longitude), math.radians(latitude)
    lon, lat = F.radians(x), F.radians(y)
    height, width = F.sin((lat - y0) / 2), F.sin((lon - x0) / 2)
    a = height * height + F.cos(lat) * width * width * math.cos(y0)
    valid = (x >= -180) & (x <= 180) & (y >= -90) & (y <= 90)
    return valid & (a <= areas.circle_threshold(metres))


def _polygon(ring: list[tuple[float, float]], x: Column, y: Column) -> Column:
    crossings, on_edge = F.lit(0), F.lit(False)
    for (x1, y1), (x2, y2) in pairwise(ring):
        side = (y - y1) * (x2 - x1) - (x - x1) * (y2 - y1)
        within = x.between(min(x1, x2), max(x1, x2)) & y.between(min(y1, y2), max(y1, y2))
        on_edge = on_edge | ((side == 0) & within)
        straddles = (F.lit(y1) > y) != (F.lit(y2) > y)
        crossings = crossings + (straddles & ((side < 0) != F.lit(y2 > y1))).cast("int")
    return on_edge | (crossings % 2 == 1)


__all__ = ["degree", "truth", "truth_by_arrow", "where"]
