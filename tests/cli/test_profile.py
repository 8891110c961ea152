"""Profiles: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.profile import Profile, load_profile
from tidegate.errors import EnvironmentProblem


def test_the_embedded_one_needs_no_file() -> None:
    assert load_profile("embedded") == Profile()


def test_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text(
        "master: spark://head:7077\nspark: {spark.cores.max: 8, spark.ui.enabled: true}\nlog: {kafka: 'head:9092'}\n"
    )
    expected = Profile("spark://head:7077", {"spark.cores.max": "8", "spark.ui.enabled": "true"}, "head:9092")
    assert load_profile(str(path)) == load_profile(str(path.with_suffix(""))) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "expected a map with master, spark, log, shared, not [1]"),
        ("mater: local", "unknown key 'mater'; did you mean 'master'?"),
        ("log: kafka", "log: expected files, or {kafka: 'host:9092'}, not 'kafka'"),
        ("master: 7", "master: expected text such as 'spark://host:7077', not 7"),
        ("spark: 7", "spark: expected settings by name, not 7"),
        ("shared: perhaps", "shared: expected true or false, not 'perhaps'"),
        ("master: spark://head:7077", "let the log be Kafka"),
        ("master: [", "expected a profile in YAML"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(EnvironmentProblem) as caught:
        load_profile(str(path))
    assert message in str(caught.value)


def test_files_on_a_cluster_are_taken_where_the_folder_is_shared() -> None:
    assert Profile("spark://head:7077", shared=True).is_local is False


def test_an_unknown_name() -> None:
    with pytest.raises(EnvironmentProblem, match=r"no profile .cluster.; expected .embedded., or the path"):
        load_profile("cluster")
