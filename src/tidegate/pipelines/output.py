"""The last step of every pipeline: checks constraints, masks attributes, creates the columns that a writer reads."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.model.types import INTEGER_RANGES, Scalar, Type
from tidegate.pipelines import records
from tidegate.pipelines.records import col
from tidegate.pipelines.types import spark_type
from tidegate.services.definitions import Mask, Service

COLUMNS = ("verdict", "partition", "key", "revision", "child", "id", "source", "arrived", "body")
"""The columns that the writer reads, in this order."""


def finish(frame: DataFrame, service: Service, schema: Schema, output: Schema, *, keyed: bool, key: bytes) -> DataFrame:
    """Check the constraints of each event, mask attributes, and write it as JSON.

    `schema` is the schema of the frame with the service's constraints, `output` the schema that subscribers see, and
    `key` the secret of `hmac`.
    """
    hidden = {name for name in service.mask if schema.root.get(name) is not None}
    violated = records.violations(schema, hidden)
    reason = F.col("_problem") if violated is None else F.coalesce(F.col("_problem"), violated)
    judged = frame.withColumn("_reason", reason)
    for name in hidden:
        field = schema.root.get(name)
        assert field is not None
        judged = judged.withColumn(name, _masked(col(name), field.type, service.mask[name], key))
    if schema.event_time in hidden:
        judged = judged.withColumn("_time", F.timestamp_micros("_arrived"))
    # A key may contain a masked value of this service or of one that it reads, so ids that contain keys are hashed.
    place = _hmac(F.col("_key"), key) if hidden and keyed else F.col("_key")
    id_ = F.col("_id")
    if hidden:
        id_ = _hidden_id(place) if keyed else _hashed_id(key)
    return judged.select(
        _verdict(service).alias("verdict"),
        _partition(keyed).alias("partition"),
        (place if keyed else F.lit(None).cast("string")).alias("key"),
        (F.col("_revision") if keyed else F.col("_position")).cast("long").alias("revision"),
        F.col("_child").cast("int").alias("child"),
        id_.alias("id"),
        _source().alias("source"),
        F.col("_arrived").alias("arrived"),
        _body(service, output, id_, bool(hidden)).alias("body"),
    )


def _verdict(service: Service) -> Column:
    unreadable = F.lit("quarantine")
    if service.on_violation == "drop":
        # `on_late` and `max_ahead` have decided already about an event whose time is the problem.
        unreadable = F.when(F.col("_problem").rlike(records.UNTIMELY), unreadable).otherwise(F.lit("drop"))
    return (
        F.when(F.col("_reason").isNull(), F.lit("pass"))
        .when(F.col("_problem").isNotNull(), unreadable)
        .otherwise(F.lit(service.on_violation))
    )


def _partition(keyed: bool) -> Column:
    """Return the output partition. Refused results of a keyed service go to partition 0, where keys identify events."""
    if not keyed:
        return F.col("_partition")
    return F.when(F.col("_reason").isNull(), F.col("_partition")).otherwise(F.lit("0"))


def _source() -> Column:
    child = F.when(F.col("_child") > 0, F.concat(F.lit("."), F.col("_child").cast("string"))).otherwise(F.lit(""))
    return F.concat(F.col("_source"), F.lit(":"), F.col("_position").cast("string"), child)


def _hidden_id(place: Column) -> Column:
    revised = F.col("_id") == F.concat(F.col("_key"), F.lit("#"), F.col("_revision").cast("string"))
    return F.when(revised, F.concat(place, F.lit("#"), F.col("_revision").cast("string"))).otherwise(place)


def _hashed_id(key: bytes) -> Column:
    """Return the hashed id: ids of an input may contain a masked value. An id that is only a position stays."""
    own = F.concat(F.translate("_source", "/", ":"), F.lit(":"), F.col("_position").cast("string"))
    id_ = F.col("_id")
    return F.when(id_ == own, id_).otherwise(_hmac(F.concat(F.lit("id:"), id_), key))


def _body(service: Service, output: Schema, id_: Column, hides: bool) -> Column:
    """Return the JSON object of an event, with `_violations` if it is flagged, with `_reason` if it is refused.

    The text of an unreadable record can't be masked, so it is not copied; `_src` says where it is in the source.
    """
    plain = records.body(output)
    refused = records.body(output, {"_reason": F.col("_reason")})
    raw = [] if hides else [F.col("_raw")]
    malformed = F.to_json(F.struct(F.col("_time"), F.col("_reason"), *raw), records.WRITING)
    judged = F.when(F.col("_reason").isNull(), plain).when(F.col("_problem").isNotNull(), malformed)
    match service.on_violation:
        case "flag":
            return judged.otherwise(records.body(output, {"_violations": F.col("_reason")}))
        case "fail":
            return judged.otherwise(F.concat(F.col("_reason"), F.lit(" in event "), id_))
    return judged.otherwise(refused)


def _masked(value: Column, kind: Type, mask: Mask, key: bytes) -> Column:
    match mask.how:
        case "hmac":
            return _hmac(value.cast("string"), key)
        case "truncate":
            return F.substring(value, 1, mask.digits)
        case "round":
            return F.round(value, mask.digits) if kind.kind == "float" else _rounded(value, str(kind), mask.digits)
    return F.lit(None)


def _rounded(value: Column, name: str, digits: int) -> Column:
    """Return a rounded integer; null if the result is outside of its type."""
    low, high = (F.lit(str(bound)).cast("decimal(20,0)") for bound in INTEGER_RANGES[name])
    rounded = F.round(value.cast("decimal(20,0)"), digits)
    return F.when(rounded.between(low, high), rounded.try_cast(spark_type(Scalar(name))))


def _hmac(value: Column, key: bytes) -> Column:
    return F.lower(F.hex(F.hmac(F.lit(key), F.encode(value, "UTF-8"))))
