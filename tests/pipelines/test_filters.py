"""A filter as a Spark column agrees with the filter on one event."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests import generate
from tests.conftest import SPARK_SEEDS
from tidegate import Enum, Filter, FilterNotNative, Schema, UnsatisfiableFilter
from tidegate.model import Array, Scalar, Struct, Type, arrow
from tidegate.pipelines import types
from tidegate.pipelines.filters import degree, truth, where
from tidegate.pipelines.nativeness import is_native

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark's own use of sockets and of pandas, not ours.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

WIDE = Schema(
    {
        "i8": "int8",
        "i32": "int32",
        "i64": "int64",
        "u8": "uint8",
        "u32": "uint32",
        "u64": "uint64",
        "f32": "float32",
        "f64": "float64",
        "g64": "float64",
        "on": "bool",
        "mark": "char",
        "vid": "string",
        "my field": "string",
        "kind": Enum("RED", "GREEN", "it's blue"),
        "time": "timestamp",
        "pos": {"x": "float64", "y": "float32", "my part": "string"},
        "list": "int64[]",
        "parts": "{x: float64, y: string}[3]",
    }
)
EVENTS, AT_ONCE = 120, 20


def spark_value(value: Any, kind: Type) -> Any:
    """A value as Spark takes it: an unsigned long is a decimal there."""
    if value is None:
        return None
    match kind:
        case Struct():
            return tuple(spark_value(value.get(field.name), field.type) for field in kind)
        case Array():
            return [spark_value(each, kind.item) for each in value]
    return Decimal(value) if kind == Scalar("uint64") else value


def filters(rng: Random, count: int, schema: Schema = WIDE) -> list[Filter]:
    found: list[Filter] = []
    while len(found) < count:
        try:
            made = Filter(generate.filter_text(rng, schema, depth=2), schema)
        except UnsatisfiableFilter:
            continue
        if is_native(made):
            found.append(made)
    return found


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    rng = Random(11)
    return [generate.event(rng, WIDE) for _ in range(EVENTS)]


@pytest.fixture(scope="module")
def frame(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    found = to_frame(spark, events)
    found.count()
    return found


def to_frame(spark: SparkSession, events: list[dict[str, Any]], schema: Schema = WIDE) -> DataFrame:
    """The events as a frame; a required attribute may be missing in them, so all may be null."""
    from pyspark.sql.types import ArrayType, DataType, StructField, StructType

    def relax(kind: DataType) -> DataType:
        if isinstance(kind, StructType):
            return StructType([StructField(f.name, relax(f.dataType), True, f.metadata) for f in kind])
        return ArrayType(relax(kind.elementType)) if isinstance(kind, ArrayType) else kind

    rows = [spark_value(row, schema.root) for row in arrow.to_batch(events, schema).to_pylist()]
    relaxed = relax(types.to_spark(schema).add("n", "integer"))
    assert isinstance(relaxed, StructType)
    return spark.createDataFrame([(*row, n) for n, row in enumerate(rows)], relaxed).coalesce(1).cache()


def check(frame: DataFrame, events: list[dict[str, Any]], made: list[Filter]) -> None:
    columns = [truth(each).alias(f"t{n}") for n, each in enumerate(made)]
    columns += [degree(each).alias(f"d{n}") for n, each in enumerate(made)]
    rows = frame.orderBy("n").select(*columns).collect()
    for event, row in zip(events, rows, strict=True):
        for n, each in enumerate(made):
            assert row[f"t{n}"] is each.truth(event), f"{each.text} on {event}"
            assert row[f"d{n}"] == pytest.approx(each.degree(event), abs=1e-9), f"{each.text} on {event}"


@pytest.mark.parametrize("seed", range(SPARK_SEEDS))
def test_native_columns_agree_with_one_event_at_a_time(
    frame: DataFrame, events: list[dict[str, Any]], seed: int
) -> None:
    check(frame, events, filters(Random(seed), AT_ONCE))


@pytest.mark.parametrize("seed", range(SPARK_SEEDS))
def test_native_columns_agree_on_random_schemas(spark: SparkSession, seed: int) -> None:
    rng = Random(1_000 + seed)
    schema = generate.schema(rng)
    events = [generate.event(rng, schema) for _ in range(40)]
    check(to_frame(spark, events, schema), events, filters(rng, 8, schema))


UNKNOWN = [
    "vid = 'a'",
    'vid <> "my field"',
    "vid NOT LIKE 'a%'",
    "vid NOT MATCH 'a+'",
    "vid STRLIKE ''",
    "vid STRLIKE '' SIMILARITY 0.5",
    "vid NOT STRLIKE 'abc' WITHIN 1",
    "f64 > 1",
    "f64 <> i64",
    "i64 NOT IN (1, 2)",
    "u64 BETWEEN 1 AND 2",
    "kind <> 'RED'",
    "kind = i32",
    "on <> TRUE",
    "time < '2020-01-01'",
    "list[1] = 1",
    "parts[0].x = 1",
    "(pos.x, f64) NOT INSIDE BOX(0, 0, 1, 1)",
    "(pos.x, f64) NOT INSIDE CIRCLE(0, 0, 1)",
    "(pos.x, f64) NOT INSIDE POLYGON(0 0, 1 0, 1 1)",
    "f64 IS S(0, 1)",
    "NOT FUZZY(f64 IS S(0, 1), vid STRLIKE '' SIMILARITY 0.1) >= 0",
    "NOT FUZZY MIN(f64 IS BELL(1, 1, 1), vid = 'a') >= 0",
]


def test_without_a_value_every_predicate_is_unknown(spark: SparkSession) -> None:
    made = [Filter(text, WIDE) for text in UNKNOWN]
    assert [each.truth({}) for each in made] == [None] * len(made)
    check(to_frame(spark, [{}]), [{}], made)


@pytest.mark.parametrize(
    "text",
    [
        'vid LIKE "my field"',
        "'abc' LIKE vid",
        "vid MATCH '(a|b)*'",
        "vid MATCH '(?i)B17'",
        'vid MATCH "my field"',
        "vid MATCH '(a|b)*' AND i64 > 0 OR pos.x IS S(0, 1)",
    ],
)
def test_filter_without_native_form_runs_over_arrow(frame: DataFrame, events: list[dict[str, Any]], text: str) -> None:
    made = Filter(text, WIDE)
    with pytest.raises(FilterNotNative, match="as a Spark column expected"):
        truth(made)
    kept = {row["n"] for row in where(frame, made).select("n").collect()}
    assert kept == {n for n, event in enumerate(events) if made.matches(event)}


def test_filter_without_a_schema_uses_that_of_the_frame(frame: DataFrame, events: list[dict[str, Any]]) -> None:
    untyped, typed = Filter("f64 > 0.5 AND kind >= 'GREEN'"), Filter("f64 > 0.5 AND kind >= 'GREEN'", WIDE)
    assert where(frame, untyped).count() == sum(map(typed.matches, events))
    with pytest.raises(FilterNotNative, match="a schema: Spark's columns have types"):
        truth(untyped)


def test_schemas_survive_spark(frame: DataFrame) -> None:
    spark_schema = types.to_spark(WIDE)
    assert types.from_spark(spark_schema) == WIDE
    reread = type(spark_schema).fromJson(spark_schema.jsonValue())
    assert types.from_spark(reread) == WIDE


def test_foreign_spark_schema_is_converted_by_its_types() -> None:
    from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

    from tidegate import SchemaError

    foreign = StructType().add("a", "double").add("b", ArrayType(StringType())).add("_c", "string")
    assert types.from_spark(foreign) == Schema({"a": "float64?", "b": "string[]?"})
    with pytest.raises(SchemaError, match="b: Spark's binary has no counterpart"):
        types.from_spark(StructType().add("b", BinaryType()))
