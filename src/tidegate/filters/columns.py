"""Evaluates a typed tree on an Arrow record batch.

`Not` is pushed inwards first, so each predicate gives one mask that is True exactly where the predicate is true. Nulls,
NaN, missing columns and values that do not compare are False, and AND and OR are bitwise. Numbers are compared as numpy
arrays over Arrow's memory, exactly for all 64 bits. Predicates on text are evaluated once per distinct value of the
batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import EventError, Violation
from tidegate.filters import evaluate, fuzzy, membership, vectors
from tidegate.filters.arrow_columns import (
    ArrowColumn,
    distinct,
    in_one_piece,
    path_array,
    read_column,
    spread,
    to_mask,
    to_python,
)
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
    Or,
    Path,
    Pattern,
    Predicate,
    StrLike,
    operands,
    paths,
    predicates,
)
from tidegate.filters.normalize import area_numbers, opposite, push_not_inwards
from tidegate.filters.numbers import compare_arrays, compare_numbers
from tidegate.filters.vectors import BoolArray, FloatArray
from tidegate.model import timestamps
from tidegate.model.types import Enum

_TEXT: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MEETS = {
    "bool": {"bool", "int"},
    "int": {"bool", "int", "float"},
    "float": {"int", "float"},
    "string": {"string"},
    "time": {"int"},
}
"""Kinds of column that a literal compares with, as in `evaluate`."""


def mask(pushed: Node, batch: pa.RecordBatch) -> BoolArray:
    """Return which rows a tree without `Not` is true for. Raises `EventError` if `batch` is not a record batch."""
    return _Batch(batch).mask(pushed)


def masks(batch: pa.RecordBatch) -> Callable[[Node], BoolArray]:
    """Return `mask` for one batch, to be called with any number of trees; each column is read once."""
    return _Batch(batch).mask


def degrees(pushed: Node, batch: pa.RecordBatch) -> FloatArray:
    """Return the degree of each row for a tree without `Not`; 0 where the tree is unknown."""
    return judged(pushed, batch)[1]


def judged(pushed: Node, batch: pa.RecordBatch) -> tuple[BoolArray, FloatArray]:
    """Return `mask` and `degrees` together; memberships are computed once."""
    rows = _Batch(batch)
    matching = rows.mask(pushed)
    if not any(isinstance(node, Group) for node in predicates(pushed)):
        return matching, matching.astype(np.float64)
    known = matching | rows.mask(push_not_inwards(pushed, negated=True))
    return matching, np.where(known, rows.degree(pushed), 0.0)


class _Batch:
    """A batch, and a cache of the columns read from it."""

    def __init__(self, batch: pa.RecordBatch | pa.Table) -> None:
        batch = in_one_piece(batch)
        if not isinstance(batch, pa.RecordBatch):
            raise EventError([Violation("batch", f"expected a pyarrow.RecordBatch, not {type(batch).__name__}")])
        self.batch = batch
        self.rows = batch.num_rows
        self.columns: dict[Path, ArrowColumn | None] = {}
        self.values: dict[str, list[Any]] = {}
        self.graded: dict[tuple[Item, ...], tuple[list[FloatArray], BoolArray]] = {}

    # Trees ---------------------------------------------------------------------

    def mask(self, node: Node) -> BoolArray:
        match node:
            case And(terms):
                mask = np.ones(self.rows, dtype=bool)
                for term in terms:
                    mask &= self.mask(term)
                return mask
            case Or(terms):
                mask = np.zeros(self.rows, dtype=bool)
                for term in terms:
                    mask |= self.mask(term)
                return mask
        assert not isinstance(node, Not)
        return self.predicate(node)

    def degree(self, node: Node) -> FloatArray:
        match node:
            case And(terms):
                lowest = np.ones(self.rows)
                for term in terms:
                    lowest = np.minimum(lowest, self.degree(term))
                return lowest
            case Or(terms):
                highest = np.zeros(self.rows)
                for term in terms:
                    highest = np.maximum(highest, self.degree(term))
                return highest
            case Group():
                grades, known = self.grades(node)
                degree = _group_degree(node, grades)
                return np.where(known, 1.0 - degree if node.negated else degree, 0.0)
        assert not isinstance(node, Not)
        return self.predicate(node).astype(np.float64)

    # Predicates ----------------------------------------------------------------

    def predicate(self, node: Predicate) -> BoolArray:
        if not isinstance(node, Group) and any(isinstance(operand, ComputedValue) for operand in operands(node)):
            return self.row_by_row(node)
        match node:
            case Compare(path, relation, Literal() as other):
                return self.compare(path, relation, other)
            case Compare(path, relation, Path() as other):
                return self.compare_fields(path, relation, other)
            case Between(path, Literal() as low, Literal() as high, negated):
                return self.between(path, low, high, negated)
            case In():
                return self.membership(node)
            case IsNull(path, negated):
                missing = self.missing(path)
                return ~missing if negated else missing
            case Pattern(subject=Path() as path, pattern=Literal()):
                return self.by_text(path, evaluate.pattern_test(node), node.negated)
            case Pattern():
                return self.row_by_row(node)
            case StrLike(path):
                return self.by_text(path, evaluate.strlike_test(node), node.negated)
            case Inside():
                x, x_known = self.numbers(node.longitude)
                y, y_known = self.numbers(node.latitude)
                inside = vectors.inside(node.area.name, area_numbers(node), x, y)
                return (inside ^ node.negated) & x_known & y_known
            case Group():
                grades, known = self.grades(node)
                return (_group_reached(node, grades) ^ node.negated) & known
        raise AssertionError(node)

    def nothing(self) -> BoolArray:
        return np.zeros(self.rows, dtype=bool)

    def compare(self, path: Path, relation: str, literal: Literal) -> BoolArray:
        column = self.column(path)
        if column is None:
            return self.nothing()
        if column.kind == "time":
            micros = timestamps.from_text(str(literal.value)) if literal.kind == "string" else None
            return self.nothing() if micros is None else _only(column, compare_numbers(column.values, relation, micros))
        kind = "int" if isinstance(path.type, Enum) else literal.kind
        if column.kind not in _MEETS[kind]:
            return self.nothing()
        value = evaluate.comparable(literal, path.type)
        if column.kind == "string":
            return to_mask(_TEXT[relation](column.values, pa.scalar(value, pa.string())))
        return _only(column, compare_numbers(column.values, relation, value))

    def between(self, path: Path, low: Literal, high: Literal, negated: bool) -> BoolArray:
        if not negated:
            return self.compare(path, ">=", low) & self.compare(path, "<=", high)
        # A value that does not compare with both bounds is unknown.
        outside = self.compare(path, "<", low) | self.compare(path, ">", high)
        inside = self.compare(path, ">=", low) & self.compare(path, "<=", high)
        both = self.known_to(path, low) & self.known_to(path, high)
        return outside & ~inside & both

    def known_to(self, path: Path, literal: Literal) -> BoolArray:
        return self.compare(path, "=", literal) | self.compare(path, "<>", literal)

    def membership(self, node: In) -> BoolArray:
        column = self.column(node.path)
        if column is not None and column.kind == "string" and not isinstance(node.path.type, Enum):
            return self.by_text(node.path, _text_member(node), node.negated)
        equal = self.nothing()
        comparable = ~equal
        for value in node.values:
            assert isinstance(value, Literal)
            if node.negated:
                comparable &= self.known_to(node.path, value)
            equal |= self.compare(node.path, "=", value)
        return ~equal & comparable if node.negated else equal

    def compare_fields(self, path: Path, relation: str, other: Path) -> BoolArray:
        one, two = self.column(path), self.column(other)
        if one is None or two is None or "other" in (one.kind, two.kind):
            return self.nothing()
        if one.kind != two.kind and {one.kind, two.kind} not in ({"bool", "int"}, {"int", "float"}):
            return self.nothing()
        if one.kind == "string":
            return to_mask(_TEXT[relation](one.values, two.values))
        return _only(two, _only(one, compare_arrays(one.values, relation, two.values)))

    def missing(self, path: Path) -> BoolArray:
        array = self.array(path)
        if array is None:
            return np.ones(self.rows, dtype=bool)
        if pa.types.is_dictionary(array.type):
            if not pa.types.is_floating(array.type.value_type):
                return np.asarray(distinct(array)[0] < 0)
            array = array.dictionary_decode()
        return to_mask(pc.is_null(array, nan_is_null=pa.types.is_floating(array.type)))

    def by_text(self, path: Path, test: Callable[[str], bool | None], negated: bool) -> BoolArray:
        """Return the mask of a test that runs once per distinct text."""
        column = self.column(path)
        if column is None or column.kind != "string":
            return self.nothing()
        codes, texts = distinct(column.values)
        verdicts = np.fromiter((test(text) is (not negated) for text in texts), dtype=bool, count=len(texts))
        mask: BoolArray = spread(verdicts, codes, False)
        return mask

    def row_by_row(self, node: Predicate) -> BoolArray:
        """Return the mask of a predicate that is evaluated for each row: computed values, patterns that are fields."""
        test = evaluate.test(node)
        names = dict.fromkeys(str(path.parts[0]) for path in paths(node))
        columns = {name: self.python_values(name) for name in names if self.batch.schema.get_all_field_indices(name)}
        rows = zip(*columns.values(), strict=True) if columns else itertools.repeat((), self.rows)
        return np.fromiter(
            (test(dict(zip(columns, row, strict=True))) is True for row in rows), dtype=bool, count=self.rows
        )

    def python_values(self, name: str) -> list[Any]:
        """Return a column as Python values; a value that Python can't hold becomes None."""
        if name not in self.values:
            self.values[name] = to_python(self.batch.column(self.batch.schema.get_all_field_indices(name)[0]))
        return self.values[name]

    # Fuzzy groups --------------------------------------------------------------

    def grades(self, group: Group) -> tuple[list[FloatArray], BoolArray]:
        """Return the membership of each item, and where all of them are known."""
        if group.items not in self.graded:
            known = np.ones(self.rows, dtype=bool)
            grades = []
            for item in group.items:
                grade, valid = self.item(item)
                known &= valid
                grades.append(grade)
            self.graded[group.items] = grades, known
        return self.graded[group.items]

    def item(self, item: Item) -> tuple[FloatArray, BoolArray]:
        match item.predicate:
            case Member(path, shape):
                x, known = self.numbers(path)
                grade = vectors.membership(shape.name, fuzzy.shape_numbers(item.predicate), x)
                return 1.0 - grade if item.negated else grade, known
            case StrLike() as like:
                grade, known = self.text_grades(like.path, evaluate.strlike_grade(like))
                return 1.0 - grade if item.negated ^ like.negated else grade, known
        crisp = opposite(item.predicate) if item.negated else item.predicate
        confirmed, refuted = self.predicate(crisp), self.predicate(opposite(crisp))
        return confirmed.astype(np.float64), confirmed | refuted

    def text_grades(self, path: Path, grade: Callable[[str], float]) -> tuple[FloatArray, BoolArray]:
        column = self.column(path)
        if column is None or column.kind != "string":
            return np.zeros(self.rows), self.nothing()
        codes, texts = distinct(column.values)
        grades = np.fromiter(map(grade, texts), dtype=np.float64, count=len(texts))
        return spread(grades, codes, 0.0), codes >= 0

    # Columns -------------------------------------------------------------------

    def numbers(self, path: Path) -> tuple[FloatArray, BoolArray]:
        """Return a column as floats, and where it has a number."""
        column = self.column(path)
        if column is None or column.kind not in ("int", "float"):
            return np.zeros(self.rows), self.nothing()
        values = column.values.astype(np.float64)
        known = ~np.isnan(values)
        return values, known if column.valid is None else known & column.valid

    def column(self, path: Path) -> ArrowColumn | None:
        if path not in self.columns:
            array = self.array(path)
            self.columns[path] = None if array is None else read_column(array, path.type)
        return self.columns[path]

    def array(self, path: Path) -> pa.Array | None:
        return path_array(self.batch, path)


def _only(column: ArrowColumn, mask: BoolArray) -> BoolArray:
    return mask if column.valid is None else mask & column.valid


def _text_member(node: In) -> Callable[[str], bool | None]:
    texts = {value.value for value in node.values if isinstance(value, Literal) and value.kind == "string"}
    whole = all(isinstance(value, Literal) and value.kind == "string" for value in node.values)
    return lambda text: True if text in texts else False if whole else None


# Groups ------------------------------------------------------------------------


def _group_degree(group: Group, grades: list[FloatArray]) -> FloatArray:
    limits = fuzzy.thresholds(group)
    if limits.minimum:
        lowest: FloatArray = np.minimum.reduce(grades)
        return lowest
    total = np.zeros(len(grades[0]))
    for weight, grade in zip(limits.weights, grades, strict=True):
        total = total + weight * grade
    return total / limits.total


def _group_reached(group: Group, grades: list[FloatArray]) -> BoolArray:
    limits = fuzzy.thresholds(group)
    reached = _group_degree(group, grades) >= limits.alpha - membership.SLACK
    for beta, grade in zip(limits.betas, grades, strict=True):
        reached &= grade >= beta - membership.SLACK
    return reached
