"""Schemas: every notation gives the same schema and survives a round trip."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import generate
from tidegate import Array, Enum, Optional, Schema, SchemaError
from tidegate.model import jsonschema
from tidegate.model.types import SCALARS, Field, Scalar, Struct, parse_field_type, parse_type

randoms = st.integers(0, 2**64).map(Random)
INT = {"a": "int32"}


def odd(given: object) -> Any:
    """Pass a value that a type checker would refuse."""
    return given


@given(randoms)
def test_schema_survives_every_notation(rng: Random) -> None:
    schema = generate.schema(rng)
    assert Schema(schema.to_dict()) == schema
    assert Schema.from_json_schema(schema.to_json_schema()) == schema
    assert Schema.from_arrow(schema.to_arrow()) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(Schema(schema.to_dict())) == hash(schema)


@given(randoms)
def test_optional_attributes_survive_every_notation(rng: Random) -> None:
    inner = generate.schema(rng).root
    loose = Struct(tuple(Field(field.name, field.type, rng.random() < 0.5) for field in inner))
    schema = Schema({"outer": Optional(loose), "list": Array(loose, 3), "plain": loose})
    assert Schema(schema.to_dict()) == schema
    assert Schema.from_json_schema(schema.to_json_schema()) == schema
    assert Schema.from_arrow(schema.to_arrow()) == schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float64", Scalar("float64")),
        ("int32[4]", Array("int32", 4)),
        ("int32[]", Array("int32")),
        ("int32[2][3]", Array(Array("int32", 3), 2)),
        ("enum(CAR, BUS)", Enum("CAR", "BUS")),
        ('enum("it\'s blue", "a ""b""")', Enum("it's blue", 'a "b"')),
        ("{x: float64, y: enum(A)[2]}[]", Array({"x": "float64", "y": Array(Enum("A"), 2)})),
        (" { } ", Struct(())),
    ],
)
def test_types_have_text_notation(text: str, expected: Any) -> None:
    assert parse_type(text) == expected
    assert parse_type(str(expected)) == expected


def test_question_mark_makes_an_attribute_optional() -> None:
    assert parse_field_type("float64?") == (Scalar("float64"), False)
    assert parse_field_type("int32[4]?") == (Array("int32", 4), False)
    assert parse_field_type(Optional({"x": "float64"})) == (Struct((Field("x", Scalar("float64")),)), False)
    assert Schema({"a": "float64?"}).to_dict() == {"a": "float64?"}


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"a": "flot64"}, "a: unknown type 'flot64'; did you mean 'float64'?"),
        ({"a": "zzz"}, "a: unknown type 'zzz'; expected one of bool, int8"),
        ({"a": {"b": "x"}}, "a.b: unknown type 'x'"),
        ({"a": "int32[0]"}, "a: an array's bound must be a whole number above 0, not '0'"),
        ({"a": "int32[x]"}, "a: an array's bound must be a whole number above 0, not 'x'"),
        ({"a": "int32[4"}, "a: expected ']' in type 'int32[4', but the text ends"),
        ({"a": "int32 4"}, "a: expected the end of the type in type 'int32 4', but found '4'"),
        ({"a": "{x: int32"}, "a: expected ',' in type '{x: int32', but the text ends"),
        ({"a": "{x int32}"}, "a: expected ':' in type"),
        ({"a": "{x: int32, x: bool}"}, "a: attribute 'x' occurs twice"),
        ({"a": "enum()"}, "a: expected a label in type 'enum()', but found ')'"),
        ({"a": "enum(A, A)"}, "enum labels must be distinct"),
        ({"a": "{a:" * 70}, "a: a type may nest 64 levels deep at most"),
        ({"a": 5}, "a: 5 is not a type; expected a name such as 'float64', 'enum(CAR, BUS)' or 'int32[4]?', a dict"),
        ({5: "int32"}, "an attribute's name must be a non-empty string, not 5"),
        ({"": "int32"}, "an attribute's name must be a non-empty string, not ''"),
        ({"_a": "int32"}, "_a: names that start with _ are reserved"),
    ],
)
def test_invalid_schema_names_path_and_reason(given_: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema(given_)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Enum(), "an enum needs at least one label"),
        (lambda: Enum("A", 5), "an enum label must be a non-empty string, not 5"),  # type: ignore[arg-type]
        (lambda: Array("int32", 0), "an array's bound must be a whole number above 0, not 0"),
        (lambda: Array("int32?"), "'int32?' is optional, but a type that is required was expected"),
        (lambda: Schema({"a": "int32"}, event_time="a"), "expected the name of a timestamp attribute, not 'a'"),
        (lambda: Schema(INT, constraints=odd({"a": 5})), "constraints.a: expected text such as '> 0', not 5"),
        (lambda: Schema(INT, constraints=odd(["a"])), "constraints: expected names with text such as '> 0'"),
        (lambda: Schema(INT, terms=odd({"a": "S(0, 1)"})), "terms.a: expected names with text such as 'S(0, 10)'"),
        (lambda: Schema(INT, terms=odd(["a"])), "terms: expected terms by attribute"),
    ],
)
def test_invalid_parts_of_a_schema_are_refused(make: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("given_", [None, "float64", [("a", "int32")], 5])
def test_schema_refuses_anything_but_a_dict(given_: Any) -> None:
    with pytest.raises(SchemaError, match="expected a dict of attributes, such as"):
        Schema(given_)


def test_too_deep_dict_is_refused() -> None:
    deep: Any = "int32"
    for _ in range(3_000):
        deep = {"a": deep}
    with pytest.raises(SchemaError, match="a type may nest 64 levels deep at most"):
        Schema(deep)


def test_duplicate_attribute_names_are_refused() -> None:
    with pytest.raises(SchemaError, match="attribute names must be non-empty and distinct"):
        Schema.from_arrow(pa.schema([("a", pa.int32()), ("a", pa.string())]))


def test_schema_is_immutable() -> None:
    schema = Schema({"a": "int32"}, constraints={"a": "> 0"}, terms={"a": {"low": "Z(0, 1)"}})
    with pytest.raises(TypeError):
        schema.constraints["a"] = "< 0"  # type: ignore[index]
    with pytest.raises(TypeError):
        schema.terms["a"]["low"] = "S(0, 1)"  # type: ignore[index]
    schema = Schema({"a": "int32"})
    with pytest.raises(AttributeError, match="a Schema is immutable"):
        schema.root = Struct(())
    assert repr(schema) == "Schema({'a': 'int32'})"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"type": "integer"}, "int64"),
        ({"type": "integer", "minimum": 0}, "int64"),
        ({"type": "integer", "minimum": 0, "maximum": 255}, "uint8"),
        ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, "uint64"),
        ({"type": "number"}, "float64"),
        ({"type": "boolean"}, "bool"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "minLength": 1, "maxLength": 1}, "char"),
        ({"enum": ["A", "B"]}, "enum(A, B)"),
        ({"type": "array", "items": {"type": "number"}, "maxItems": 3}, "float64[3]"),
        ({"type": ["number", "null"]}, "float64?"),
        ({"properties": {"x": {"type": "number"}}, "required": ["x"]}, {"x": "float64"}),
    ],
)
def test_foreign_json_schema_is_read_by_its_types(document: dict[str, Any], expected: Any) -> None:
    whole = {"type": "object", "properties": {"a": document, "_id": {"type": "string"}}, "required": ["a"]}
    assert Schema.from_json_schema(whole) == Schema({"a": expected})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"type": "string"}, "expected a JSON Schema of an object, not of type 'string'"),
        ({"type": "object", "properties": {"a": {}}}, "a: expected a JSON Schema with a type"),
        ({"type": "object", "properties": {"a": 5}}, "a: expected a JSON Schema (an object), not 5"),
        ({"type": "object", "properties": {"a": {"type": ["string", "number"]}}}, "a: expected one type"),
        ({"type": "object", "properties": {"a": {"enum": [1, 2]}}}, "a: expected an enum of strings"),
        ({"type": "object", "properties": {"a": {"enum": "xyz"}}}, "a: expected an enum of strings"),
        ({"type": "object", "properties": ["a"]}, "expected properties as an object and required as a list"),
        ({"type": "object", "properties": {}, "required": "speedy"}, "required as a list of names"),
    ],
)
def test_invalid_json_schema_names_path_and_reason(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_json_schema(document)
    assert message in str(caught.value)


def test_too_deep_json_schema_is_refused() -> None:
    document: dict[str, Any] = {"type": "number"}
    for _ in range(100):
        document = {"type": "object", "properties": {"a": document}}
    with pytest.raises(SchemaError, match="a schema may nest 64 levels deep at most"):
        jsonschema.read(document)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.timestamp("ns"), "timestamp"),
        (pa.date32(), "timestamp"),
        (pa.float16(), "float32"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.decimal128(18, 0), "int64"),
        (pa.list_(pa.int32(), 3), "int32[3]"),
        (pa.large_list(pa.int32()), "int32[]"),
        (pa.struct([pa.field("x", pa.float64(), nullable=False)]), {"x": "float64"}),
    ],
)
def test_foreign_arrow_schema_is_read_by_its_types(kind: pa.DataType, expected: Any) -> None:
    foreign = pa.schema([pa.field("a", kind, nullable=False), pa.field("_id", pa.string())])
    assert Schema.from_arrow(foreign) == Schema({"a": expected})


@pytest.mark.parametrize("kind", [pa.binary(), pa.decimal128(19, 0), pa.decimal128(20, 0), pa.decimal128(9, 2)])
def test_unsupported_arrow_type_is_named(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"a: Arrow's .* has no counterpart"):
        Schema.from_arrow(pa.schema([("a", kind)]))


def test_every_named_type_has_an_arrow_and_a_json_type() -> None:
    schema = Schema({f"x_{name}": name for name in SCALARS})
    assert Schema.from_arrow(schema.to_arrow()) == schema
    assert Schema.from_json_schema(schema.to_json_schema()) == schema
