"""`tidegate plan --no-spark`, where there is no Java."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli.main import app

pytest.importorskip("pyspark")

SERVICES = """
streams: {a: {schema: {vid: string, n: int64, time: timestamp}, event_time: time}}
services:
  clean: {from: a, pipeline: [{filter: "vid MATCH '(a+b)+'"}], constraints: {vid: "MATCH '(c+d)+'"}}
  once: {from: a, pipeline: [{deduplicate: {by: [vid], within: 10m}}]}
"""


def test_plan_without_spark_starts_no_jvm(tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text(SERVICES)
    no_java = {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    arguments = ["plan", str(tmp_path / "services.yaml"), "--no-spark", "--json", "--data", str(tmp_path / "data")]
    result = CliRunner().invoke(app, arguments, env=no_java)
    assert result.exit_code == 0, result.output
    clean, once = json.loads(result.stdout)
    assert clean["mode"] == "micro-batch"
    assert "filter \"vid MATCH '(a+b)+'\" has no exact native form, so Python evaluates it" in clean["reason"]
    assert "constraint \"vid MATCH '(c+d)+'\" has no exact native form" in clean["reason"]
    assert (once["operators"], once["stateful"], "spark" in once) == (["deduplicate"], True, False)
