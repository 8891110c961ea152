"""Evaluates a typed tree on an Arrow record batch.

`Not` is pushed inwards first, so each predicate gives one mask, True just where
it is true for sure: nulls, NaN, missing columns and values that do not compare
are simply not in it, and AND and OR are bitwise. Numbers are compared as numpy
arrays over Arrow's own memory, exactly over all 64 bits; predicates on text are
evaluated once per distinct value of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import EventError, Violation
from tidegate.filters import evaluate, fuzzy, shapes, vectors
from tidegate.filters.nodes import (
    And,
    Between,
    Compare,
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
    paths,
    predicates,
)
from tidegate.filters.normalize import area_numbers, opposite, push_not_inwards
from tidegate.filters.numbers import compare_arrays, compare_numbers
from tidegate.filters.values import plain
from tidegate.filters.vectors import Floats, Mask
from tidegate.model import timestamps
from tidegate.model.types import Enum, Type

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
"""Which kinds of column a literal compares with: as in `evaluate`."""


def mask(pushed: Node, batch: pa.RecordBatch) -> Mask:
    """Say which rows a tree without `Not` is true for."""
    return _Batch(batch).mask(pushed)


def masks(batch: pa.RecordBatch) -> Callable[[Node], Mask]:
    """Give `mask` for one batch and any number of trees: each column is read once."""
    return _Batch(batch).mask


def degrees(pushed: Node, batch: pa.RecordBatch) -> Floats:
    """Give the degree of each row for a tree without `Not`; 0 where the tree is unknown."""
    return judged(pushed, batch)[1]


def judged(pushed: Node, batch: pa.RecordBatch) -> tuple[Mask, Floats]:
    """Give `mask` and `degrees` together: memberships are computed once."""
    rows = _Batch(batch)
    found = rows.mask(pushed)
    if not any(isinstance(node, Group) for node in predicates(pushed)):
        return found, found.astype(np.float64)
    known = found | rows.mask(push_not_inwards(pushed, negated=True))
    return found, np.where(known, rows.degree(pushed), 0.0)


@dataclass(slots=True)
class Column:
    """One attribute of a batch: numbers as numpy, text as Arrow."""

    kind: str
    """bool, int, float, string, time (no schema), or other: compares with nothing."""
    values: Any
    valid: Mask | None
    """None: all of them."""


class _Batch:
    """A batch and the columns that were read of it already."""

    def __init__(self, batch: pa.RecordBatch | pa.Table) -> None:
        batch = in_one_piece(batch)
        if not isinstance(batch, pa.RecordBatch):
            raise EventError([Violation("batch", f"expected a pyarrow.RecordBatch, not {type(batch).__name__}")])
        self.batch = batch
        self.rows = batch.num_rows
        self.columns: dict[Path, Column | None] = {}
        self.graded: dict[tuple[Item, ...], tuple[list[Floats], Mask]] = {}

    # Trees ---------------------------------------------------------------------

    def mask(self, node: Node) -> Mask:
        match node:
            case And(terms):
                found = np.ones(self.rows, dtype=bool)
                for term in terms:
                    found &= self.mask(term)
                return found
            case Or(terms):
                found = np.zeros(self.rows, dtype=bool)
                for term in terms:
                    found |= self.mask(term)
                return found
        assert not isinstance(node, Not)
        return self.predicate(node)

    def degree(self, node: Node) -> Floats:
        match node:
            case And(terms):
                least = np.ones(self.rows)
                for term in terms:
                    least = np.minimum(least, self.degree(term))
                return least
            case Or(terms):
                most = np.zeros(self.rows)
                for term in terms:
                    most = np.maximum(most, self.degree(term))
                return most
            case Group():
                grades, known = self.grades(node)
                degree = _group_degree(node, grades)
                return np.where(known, 1.0 - degree if node.negated else degree, 0.0)
        assert not isinstance(node, Not)
        return self.predicate(node).astype(np.float64)

    # Predicates ----------------------------------------------------------------

    def predicate(self, node: Predicate) -> Mask:
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
                found = vectors.inside(node.area.name, area_numbers(node), x, y)
                return (found ^ node.negated) & x_known & y_known
            case Group():
                grades, known = self.grades(node)
                return (_group_reached(node, grades) ^ node.negated) & known
        raise AssertionError(node)

    def nothing(self) -> Mask:
        return np.zeros(self.rows, dtype=bool)

    def compare(self, path: Path, relation: str, literal: Literal) -> Mask:
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
            return _to_mask(_TEXT[relation](column.values, pa.scalar(value, pa.string())))
        return _only(column, compare_numbers(column.values, relation, value))

    def between(self, path: Path, low: Literal, high: Literal, negated: bool) -> Mask:
        if not negated:
            return self.compare(path, ">=", low) & self.compare(path, "<=", high)
        # Unknown to either bound is unknown: what compares with both, and is outside.
        outside = self.compare(path, "<", low) | self.compare(path, ">", high)
        inside = self.compare(path, ">=", low) & self.compare(path, "<=", high)
        both = self.known_to(path, low) & self.known_to(path, high)
        return outside & ~inside & both

    def known_to(self, path: Path, literal: Literal) -> Mask:
        return self.compare(path, "=", literal) | self.compare(path, "<>", literal)

    def membership(self, node: In) -> Mask:
        column = self.column(node.path)
        if column is not None and column.kind == "string" and not isinstance(node.path.type, Enum):
            return self.by_text(node.path, _text_member(node), node.negated)
        found = self.nothing()
        known = ~found
        for value in node.values:
            assert isinstance(value, Literal)
            if node.negated:
                known &= self.known_to(node.path, value)
            found |= self.compare(node.path, "=", value)
        return ~found & known if node.negated else found

    def compare_fields(self, path: Path, relation: str, other: Path) -> Mask:
        one, two = self.column(path), self.column(other)
        if one is None or two is None or "other" in (one.kind, two.kind):
            return self.nothing()
        if one.kind != two.kind and {one.kind, two.kind} not in ({"bool", "int"}, {"int", "float"}):
            return self.nothing()
        if one.kind == "string":
            return _to_mask(_TEXT[relation](one.values, two.values))
        return _only(two, _only(one, compare_arrays(one.values, relation, two.values)))

    def missing(self, path: Path) -> Mask:
        array = self.array(path)
        if array is None:
            return np.ones(self.rows, dtype=bool)
        if pa.types.is_dictionary(array.type):
            if not pa.types.is_floating(array.type.value_type):
                return np.asarray(distinct(array)[0] < 0)
            array = array.dictionary_decode()
        return _to_mask(pc.is_null(array, nan_is_null=pa.types.is_floating(array.type)))

    def by_text(self, path: Path, test: Callable[[str], bool | None], negated: bool) -> Mask:
        """Test each distinct text once."""
        column = self.column(path)
        if column is None or column.kind != "string":
            return self.nothing()
        codes, texts = distinct(column.values)
        verdicts = np.fromiter((test(text) is (not negated) for text in texts), dtype=bool, count=len(texts))
        found: Mask = _spread(verdicts, codes, False)
        return found

    def row_by_row(self, node: Pattern) -> Mask:
        """A pattern that is itself a field: each pair of text and pattern."""
        test = evaluate.test(node)
        names = dict.fromkeys(str(path.parts[0]) for path in paths(node))
        rows = self.batch.select(
            [self.batch.schema.get_all_field_indices(n)[0] for n in names if n in self.batch.schema.names]
        ).to_pylist()
        return np.fromiter((test(row) is True for row in rows), dtype=bool, count=self.rows)

    # Fuzzy groups --------------------------------------------------------------

    def grades(self, group: Group) -> tuple[list[Floats], Mask]:
        """The membership of each item, and where all of them are known."""
        if group.items not in self.graded:
            known = np.ones(self.rows, dtype=bool)
            found = []
            for item in group.items:
                grade, valid = self.item(item)
                known &= valid
                found.append(grade)
            self.graded[group.items] = found, known
        return self.graded[group.items]

    def item(self, item: Item) -> tuple[Floats, Mask]:
        match item.predicate:
            case Member(path, shape):
                x, known = self.numbers(path)
                grade = vectors.membership(shape.name, fuzzy.shape_numbers(item.predicate), x)
                return 1.0 - grade if item.negated else grade, known
            case StrLike() as like:
                grade, known = self.text_grades(like.path, evaluate.strlike_grade(like))
                return 1.0 - grade if item.negated ^ like.negated else grade, known
        crisp = opposite(item.predicate) if item.negated else item.predicate
        found, refuted = self.predicate(crisp), self.predicate(opposite(crisp))
        return found.astype(np.float64), found | refuted

    def text_grades(self, path: Path, grade: Callable[[str], float]) -> tuple[Floats, Mask]:
        column = self.column(path)
        if column is None or column.kind != "string":
            return np.zeros(self.rows), self.nothing()
        codes, texts = distinct(column.values)
        grades = np.fromiter(map(grade, texts), dtype=np.float64, count=len(texts))
        return _spread(grades, codes, 0.0), codes >= 0

    # Columns -------------------------------------------------------------------

    def numbers(self, path: Path) -> tuple[Floats, Mask]:
        """A column as floats, and where it has a number."""
        column = self.column(path)
        if column is None or column.kind not in ("int", "float"):
            return np.zeros(self.rows), self.nothing()
        values = column.values.astype(np.float64)
        known = ~np.isnan(values)
        return values, known if column.valid is None else known & column.valid

    def column(self, path: Path) -> Column | None:
        if path not in self.columns:
            array = self.array(path)
            self.columns[path] = None if array is None else read_column(array, path.type)
        return self.columns[path]

    def array(self, path: Path) -> pa.Array | None:
        return path_array(self.batch, path)


def in_one_piece(batch: Any) -> Any:
    """A table as one record batch; anything else as it is."""
    if not isinstance(batch, pa.Table):
        return batch
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in batch.columns], schema=batch.schema)


def path_array(batch: pa.RecordBatch, path: Path) -> pa.Array | None:
    """Follow a path to its array; None where the batch has no such attribute."""
    name, *rest = path.parts
    at = batch.schema.get_all_field_indices(name)
    array = batch.column(at[0]) if at else None
    for part in rest:
        if array is None:
            return None
        array = _element(array, part) if isinstance(part, int) else _member(array, part)
    if array is not None and pa.types.is_run_end_encoded(array.type):
        return pc.run_end_decode(array)
    return array


def _member(array: pa.Array, name: str) -> pa.Array | None:
    kind = array.type
    if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
        return None
    return pc.struct_field(array, kind.get_field_index(name))


def _element(array: pa.Array, index: int) -> pa.Array | None:
    """The nth element of each list; null where it is too short."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        if index >= kind.list_size:
            return pa.nulls(len(array), kind.value_type)
        at = (np.arange(len(array)) + array.offset) * kind.list_size + index
        there = _valid(array)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = array.offsets.to_numpy()
        at = offsets[:-1].astype(np.int64) + index
        there = at < offsets[1:]
        valid = _valid(array)
        there = there if valid is None else there & valid
    else:
        return None
    taken = pa.array(at, mask=None if there is None else ~there)
    return array.values.take(taken)


def read_column(array: pa.Array, kind: Type | None) -> Column:
    """Read an Arrow array as the schema, or else Arrow itself, says to compare it."""
    found = _arrow_column(array)
    wanted = kind.kind if kind is not None else ""
    if isinstance(kind, Enum):
        return _enum_column(found, kind)
    if wanted == "time":
        if found.kind == "string":
            return _times_from_text(found)
        return Column("int" if found.kind == "time" else "other", found.values, found.valid)
    if wanted in ("string", "char"):
        return found if found.kind == "string" else Column("other", found.values, found.valid)
    if wanted and found.kind == "time":
        return Column("other", found.values, found.valid)
    if kind is not None and str(kind) == "float32" and found.kind in ("int", "float"):
        with np.errstate(over="ignore"):
            return Column("float", found.values.astype(np.float64).astype(np.float32), found.valid)
    if kind is not None and str(kind) == "float32":
        return Column("other", found.values, found.valid)
    return found


def _arrow_column(array: pa.Array) -> Column:
    kind = array.type
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        # A dictionary of views can't be decoded; as one of plain text it need not be.
        textual = pa.types.is_string_view(kind.value_type) or pa.types.is_large_string(kind.value_type)
        array = _plain_dictionary(array) if textual else array.dictionary_decode()
        kind = array.type
    valid = _valid(array)
    if pa.types.is_floating(kind):
        return Column("float", _numpy(array), valid)
    if pa.types.is_integer(kind):
        return Column("int", _numpy(array), valid)
    if pa.types.is_boolean(kind):
        values = array.fill_null(False) if array.null_count else array
        return Column("bool", values.to_numpy(zero_copy_only=False).view(np.uint8), valid)
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        return Column("string", array, valid)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Column("string", array.cast(pa.string()), valid)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _time_column(array, valid)
    if pa.types.is_decimal(kind):
        return _decimal_column(array, valid)
    return Column("other", None, valid)


def _numpy(array: pa.Array) -> Any:
    """The numbers of an array, Arrow's own memory; whatever stands where it is null."""
    kind = array.type
    width = kind.bit_width // 8
    dtype = np.dtype(kind.to_pandas_dtype())
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=len(array), offset=array.offset * width)


def _plain_dictionary(array: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))


def _time_column(array: pa.Array, valid: Mask | None) -> Column:
    """Microseconds since 1970 UTC, rounded down; what 64 bits can't hold is no value."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("ms"))
    ticks = np.asarray(array.cast(pa.int64()).fill_null(0))
    factor = {"s": 1_000_000, "ms": 1000, "us": 1}.get(array.type.unit)
    if factor is None:
        return Column("time", ticks // 1000, valid)
    if factor > 1:
        fits = np.abs(ticks) <= (2**63 - 1) // factor
        if not fits.all():
            valid = fits if valid is None else valid & fits
        ticks = np.where(fits, ticks, 0) * factor
    return Column("time", ticks, valid)


def _decimal_column(array: pa.Array, valid: Mask | None) -> Column:
    """Decimals as `evaluate` reads them: whole ones (a uint64 of Spark's) exactly, as integers."""
    whole = array.type.scale == 0
    if whole:
        for kind in (pa.int64(), pa.uint64()):
            try:
                return Column("int", _numpy(array.cast(kind)), valid)
            except pa.ArrowInvalid:
                continue
    values = np.empty(len(array), dtype=object)
    values[:] = [0 if each is None else plain(each) for each in array.to_pylist()]
    return Column("int" if whole else "float", values, valid)


def _enum_column(found: Column, kind: Enum) -> Column:
    """Labels as positions; an unknown label is no value."""
    if found.kind != "string":
        return found if found.kind == "int" else Column("other", found.values, found.valid)
    codes, texts = distinct(found.values)
    positions = {label: n for n, label in enumerate(kind.labels)}
    mapped = np.fromiter((positions.get(text, -1) for text in texts), dtype=np.int64, count=len(texts))
    values = _spread(mapped, codes, -1)
    return Column("int", values, values >= 0)


def _times_from_text(found: Column) -> Column:
    codes, texts = distinct(found.values)
    read = [timestamps.from_text(text) for text in texts]
    micros = np.fromiter((0 if each is None else each for each in read), dtype=np.int64, count=len(read))
    known = np.fromiter((each is not None for each in read), dtype=bool, count=len(read))
    return Column("int", _spread(micros, codes, 0), _spread(known, codes, False))


def distinct(array: pa.Array) -> tuple[Any, list[str]]:
    """The distinct texts of an array, and for each row the number of its own; -1 where null."""
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1))
    texts = encoded.dictionary.to_pylist()
    if None in texts:  # a null inside a dictionary is null all the same
        codes = np.where(np.isin(codes, [n for n, text in enumerate(texts) if text is None]), -1, codes)
        texts = ["" if text is None else text for text in texts]
    return codes, texts


def _spread(verdicts: Any, codes: Any, missing: Any) -> Any:
    """Give each row what was found for its distinct value."""
    return np.append(verdicts, np.asarray([missing], dtype=verdicts.dtype))[codes]


def _valid(array: pa.Array) -> Mask | None:
    return _to_mask(array.is_valid()) if array.null_count else None


def _to_mask(array: pa.Array) -> Mask:
    """An Arrow array of truth values as numpy; null is False."""
    filled = array.fill_null(False) if array.null_count else array
    found: Mask = filled.to_numpy(zero_copy_only=False)
    return found


def _only(column: Column, found: Mask) -> Mask:
    return found if column.valid is None else found & column.valid


def _text_member(node: In) -> Callable[[str], bool | None]:
    texts = {value.value for value in node.values if isinstance(value, Literal) and value.kind == "string"}
    whole = all(isinstance(value, Literal) and value.kind == "string" for value in node.values)
    return lambda text: True if text in texts else False if whole else None


# Groups ------------------------------------------------------------------------


def _group_degree(group: Group, grades: list[Floats]) -> Floats:
    limits = fuzzy.thresholds(group)
    if limits.minimum:
        least: Floats = np.minimum.reduce(grades)
        return least
    total = np.zeros(len(grades[0]))
    for weight, grade in zip(limits.weights, grades, strict=True):
        total = total + weight * grade
    return total / limits.total


def _group_reached(group: Group, grades: list[Floats]) -> Mask:
    limits = fuzzy.thresholds(group)
    found = _group_degree(group, grades) >= limits.alpha - shapes.SLACK
    for beta, grade in zip(limits.betas, grades, strict=True):
        found &= grade >= beta - shapes.SLACK
    return found
