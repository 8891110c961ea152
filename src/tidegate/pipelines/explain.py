"""How a service would run, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.model import Schema
from tidegate.pipelines.compiler import Following, compile_service
from tidegate.pipelines.connector import attach
from tidegate.pipelines.resources import RunnerResources
from tidegate.services.definitions import Service
from tidegate.services.shapes import WORDS

_SCANNED = "partition string, position long, arrived long, value string"
_NO_SECRET = b"********"


def explain(
    spark: SparkSession,
    service: Service,
    inputs: Mapping[str, Schema],
    *,
    obstacle: str = "",
    resources: RunnerResources | None = None,
) -> dict[str, Any]:
    """Say how a service would run, as JSON values: its mode and why, its operators, and Spark's plan.

    `obstacle` says why nothing runs in real-time mode here. The plan is made
    over empty tables in place of the streams: Spark has none for a stream before
    it runs.
    """

    def scan(stream: str, _: Following | None) -> DataFrame:
        return spark.createDataFrame([], _SCANNED).alias(stream)

    compiled = compile_service(service, inputs, scan, key=_NO_SECRET, obstacle=obstacle, resources=resources)
    plan = compiled.plan
    return {
        "service": service.name,
        "mode": plan.mode,
        "reason": plan.reason,
        "from": list(service.inputs),
        "operators": [WORDS[type(operator)] for operator in service.pipeline],
        "output": compiled.schema.to_dict(),
        "stateful": plan.stateful,
        "recovers_from": "Spark's checkpoint and the keys in its output" if plan.keyed else "its own output",
        "spark": attach.spark_plan(compiled.frame),
    }
