"""Explains how a service would run, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.model import Schema
from tidegate.pipelines.compiler import Following, compile_service, plan_service
from tidegate.pipelines.connector import attach
from tidegate.pipelines.resources import RunnerResources
from tidegate.services.definitions import Service
from tidegate.services.operators import WORDS
from tidegate.services.schema_inference import output_schema

_SCANNED = "partition string, position long, arrived long, value string, tick int, caught_up long"
_NO_SECRET = b"********"


def outline(service: Service, inputs: Mapping[str, Schema], *, obstacle: str = "") -> dict[str, Any]:
    """Return how a service would run, as JSON values: its mode with the reason, and its operators. Needs no JVM.

    `obstacle` is the reason why real-time mode is not available on this machine, if so.
    """
    plan = plan_service(service, inputs, obstacle=obstacle)
    return {
        "service": service.name,
        "mode": plan.mode,
        "reason": plan.reason,
        "from": list(service.inputs),
        "operators": [WORDS[type(operator)] for operator in service.pipeline],
        "output": output_schema(service, inputs).to_dict(),
        "stateful": plan.stateful,
        "recovers_from": "Spark's checkpoint and the keys in its output" if plan.keyed else "its own output",
    }


def explain(
    spark: SparkSession,
    service: Service,
    inputs: Mapping[str, Schema],
    *,
    obstacle: str = "",
    resources: RunnerResources | None = None,
) -> dict[str, Any]:
    """Return what `outline` does, and Spark's plan.

    The plan is that of empty tables instead of streams, since Spark has no plan of a stream before it runs.
    """

    def scan(stream: str, _: Following | None, __: int, ___: int) -> DataFrame:
        return spark.createDataFrame([], _SCANNED).alias(stream)

    if not obstacle:
        attach.register_state_functions(spark)
    compiled = compile_service(service, inputs, scan, key=_NO_SECRET, obstacle=obstacle, resources=resources)
    return {**outline(service, inputs, obstacle=obstacle), "spark": attach.spark_plan(compiled.frame)}
