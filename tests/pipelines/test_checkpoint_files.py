"""The places of checkpoints: a folder, and a URI of Hadoop's file systems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipelines.running import World
from tests.pipelines.test_engine import STREAMS, gps
from tidegate.pipelines.checkpoint_files import CheckpointFiles, HadoopFiles, LocalFiles
from tidegate.pipelines.checkpoints import Checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

PLACES: dict[str, Callable[[SparkSession, Path], CheckpointFiles]] = {
    "a folder": lambda _, folder: LocalFiles(folder, is_shared=True),
    "a URI": lambda spark, folder: HadoopFiles(spark, f"file://{folder}"),
}
COUNTED = """
services:
  flow:
    from: a
    pipeline: [{aggregate: {count: n, by: [vid], window: {length: 60s}, emit: updates}}]
"""


@pytest.fixture(params=PLACES)
def files(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> CheckpointFiles:
    return PLACES[request.param](spark, tmp_path / "states")


def test_file_is_replaced_listed_and_deleted(files: CheckpointFiles, tmp_path: Path) -> None:
    assert files.read("x/v1/begin.json") is None
    assert files.entries("x") == {}
    files.delete("x")
    files.write("x/v1/begin.json", b"one")
    files.write("x/v1/begin.json", b"two")
    assert files.read("x/v1/begin.json") == b"two"
    assert set(files.entries("x")) == {"v1"}
    assert files.entries("x/v1")["begin.json"] > 1_600_000_000_000_000
    assert files.place.endswith(str(tmp_path / "states"))
    files.delete("x")
    assert files.read("x/v1/begin.json") is None


def test_service_with_state_goes_on_with_its_checkpoint(
    files: CheckpointFiles, spark: SparkSession, tmp_path: Path
) -> None:
    for restart in range(2):
        world = World(spark, tmp_path, STREAMS + COUNTED)
        world.engine.checkpoints = Checkpoints(files)
        world.start("flow")
        world.append("a", [gps(1), gps(1)])
        assert [event["n"] for event in world.await_events("flow", 2 * restart + 2)] == [*range(1, 2 * restart + 3)]
        world.stop("flow")
        world.log.close()
    assert world.engine.checkpoints.versions("flow") == [1]
    world.engine.forget("flow")
    assert world.engine.checkpoints.versions("flow") == []
