"""Converts schemas from and to Spark's types.

Spark has no unsigned integers, characters or enums. They become the next wider integer or text, and the metadata of the
field stores the original type.
"""

from __future__ import annotations

from pyspark.sql import types as spark

from tidegate.errors import SchemaError
from tidegate.model.schema import Schema
from tidegate.model.types import Array, Enum, Field, Scalar, Struct, Type, notation, parse_field_type

_METADATA = "tidegate"

_SCALARS: dict[str, spark.DataType] = {
    "bool": spark.BooleanType(),
    "int8": spark.ByteType(),
    "int16": spark.ShortType(),
    "int32": spark.IntegerType(),
    "int64": spark.LongType(),
    "uint8": spark.ShortType(),
    "uint16": spark.IntegerType(),
    "uint32": spark.LongType(),
    "uint64": spark.DecimalType(20, 0),
    "float32": spark.FloatType(),
    "float64": spark.DoubleType(),
    "char": spark.StringType(),
    "string": spark.StringType(),
    "timestamp": spark.TimestampType(),
}

_FROM_SPARK: dict[type[spark.DataType], str] = {
    spark.BooleanType: "bool",
    spark.ByteType: "int8",
    spark.ShortType: "int16",
    spark.IntegerType: "int32",
    spark.LongType: "int64",
    spark.FloatType: "float32",
    spark.DoubleType: "float64",
    spark.StringType: "string",
    spark.TimestampType: "timestamp",
    spark.TimestampNTZType: "timestamp",
}


def to_spark(schema: Schema) -> spark.StructType:
    """Return the Spark schema, with the original types in the metadata."""
    return _struct(schema.root)


def _struct(struct: Struct, *, nullable: bool = False) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(
                field.name, spark_type(field.type), nullable or not field.required, {_METADATA: notation(field)}
            )
            for field in struct
        ]
    )


def spark_type(kind: Type) -> spark.DataType:
    """Return the Spark type for values of a type.

    The fields of a struct are nullable, because Spark refuses to cast parsed JSON to a struct with other fields.
    """
    match kind:
        case Scalar():
            return _SCALARS[kind.name]
        case Enum():
            return spark.StringType()
        case Array():
            return spark.ArrayType(spark_type(kind.item))
        case Struct():
            return _struct(kind, nullable=True)


def from_spark(struct: spark.StructType) -> Schema:
    """Return the schema of a Spark schema without reserved keys. Prefers our metadata. Raises SchemaError."""
    return Schema(Struct(tuple(_field(field, field.name) for field in struct if not field.name.startswith("_"))))


def _field(field: spark.StructField, path: str) -> Field:
    written = (field.metadata or {}).get(_METADATA)
    if isinstance(written, str):
        kind, required = parse_field_type(written, path)
        if spark_type(kind).simpleString() == field.dataType.simpleString():
            return Field(field.name, kind, required)
    return Field(field.name, _type(field.dataType, path), required=not field.nullable)


def _type(kind: spark.DataType, path: str) -> Type:
    match kind:
        case spark.StructType():
            return Struct(tuple(_field(field, f"{path}.{field.name}") for field in kind))
        case spark.ArrayType():
            return Array(_type(kind.elementType, f"{path}[]"))
        case spark.DecimalType() if kind.precision <= 18 and kind.scale == 0:  # always fits int64
            return Scalar("int64")
    name = _FROM_SPARK.get(type(kind))
    if name is None:
        raise SchemaError(f"Spark's {kind.simpleString()} has no counterpart in the schema language", path)
    return Scalar(name)
