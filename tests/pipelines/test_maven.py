"""Jars are fetched once, whole or not at all, and never those that pyspark has."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from tidegate.errors import EnvironmentProblem
from tidegate.pipelines.connector import build, maven
from tidegate.pipelines.connector.maven import CHECKSUMS, fetch, kafka_jars

BROUGHT = (
    "kafka-clients-3.9.2.jar",
    "lz4-java-1.8.0.jar",
    "slf4j-api-1.7.36.jar",
    "snappy-java-1.1.10.5.jar",
    "zstd-jni-1.5.6-4.jar",
)


EMPTY = hashlib.sha256(b"").hexdigest()
"""The checksum of the jars that our Maven brings."""


@pytest.fixture
def mvn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven that does what its script says; it notes every call."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    script = folder / "mvn"
    pinned = tmp_path / "jars.sha256"
    pinned.write_text("".join(f"{EMPTY}  {jar}\n" for jar in BROUGHT))
    monkeypatch.setattr(maven, "CHECKSUMS", pinned)
    say(script, "mkdir -p $into", *(f"touch $into/{jar}" for jar in BROUGHT))
    return script


def say(script: Path, *lines: str) -> None:
    first = ["#!/bin/sh", 'echo "$@" >> $(dirname $0)/calls', 'for each in "$@"; do case $each in']
    parse = ["-DoutputDirectory=*) into=${each#*=};;", "esac; done"]
    script.write_text("\n".join([*first, *parse, *lines]))
    script.chmod(0o755)


def test_jars_of_pyspark_are_left_out_and_maven_is_called_once(mvn: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert [jar.name for jar in kafka_jars(tmp_path / "cache")] == list(BROUGHT[:1])
    (call,) = (mvn.parent / "calls").read_text().splitlines()
    assert "dependency:copy-dependencies -DincludeScope=runtime" in call
    assert [found.name for found in (tmp_path / "cache").iterdir()] == ["kafka-clients-3.9.2"]


def test_relative_cache_folder_works(mvn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(mvn, "cd $(dirname $4); mkdir -p $into", *(f"touch $into/{jar}" for jar in BROUGHT))  # as Maven does
    monkeypatch.chdir(tmp_path)
    assert len(fetch("a:b:1", Path("cache"))) == len(BROUGHT)


def test_failure_is_reported_and_leaves_no_files(mvn: Path, tmp_path: Path) -> None:
    error = "[ERROR] Could not find artifact a:b:jar:1 -> [Help 1]"
    say(mvn, "mkdir -p $into; touch $into/half.jar", f"echo '{error}'; echo '[ERROR] more'; exit 1")
    with pytest.raises(EnvironmentProblem, match=r"^Maven can't fetch a:b:1: Could not find artifact a:b:jar:1$"):
        fetch("a:b:1", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_hanging_maven_is_stopped(mvn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maven, "FETCH_TIMEOUT_S", 0.05)
    say(mvn, "exec sleep 60")
    with pytest.raises(EnvironmentProblem, match=r"^Maven did not fetch a:b:1 within 0\.05 s$"):
        fetch("a:b:1", tmp_path / "cache")


def test_missing_maven_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match=r"a:b:1 is fetched by Maven, and 'mvn' is not there: install it, or"):
        fetch("a:b:1", tmp_path / "cache")
    (tmp_path / "cache" / "b-1").mkdir(parents=True)
    (tmp_path / "cache" / "b-1" / "b-1.jar").touch()
    (tmp_path / "pinned").write_text(f"{EMPTY}  b-1.jar\n")
    assert [jar.name for jar in fetch("a:b:1", tmp_path / "cache", tmp_path / "pinned")] == ["b-1.jar"]


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_kafkas_client_can_be_fetched_and_ours_compiles_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        ours, clients = build.kafka_jars()
    except EnvironmentProblem as exc:
        pytest.skip(f"no client: {exc}")
    assert clients.name.startswith("kafka-clients")
    with zipfile.ZipFile(ours) as packed, zipfile.ZipFile(build.jar()) as log:
        assert "tidegate/KafkaSource.class" in packed.namelist()
        assert not {*packed.namelist()} & {*log.namelist()}


def test_altered_jar_is_refused_and_not_cached(mvn: Path, tmp_path: Path) -> None:
    say(mvn, "mkdir -p $into", *(f"touch $into/{jar}" for jar in BROUGHT), f"echo altered > $into/{BROUGHT[0]}")
    with pytest.raises(
        EnvironmentProblem, match=rf"^{BROUGHT[0]} of a:b:1 has SHA-256 .*, expected {EMPTY}: it is not"
    ):
        fetch("a:b:1", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_jar_without_a_pinned_checksum_is_refused(mvn: Path, tmp_path: Path) -> None:
    say(mvn, "mkdir -p $into; touch $into/stranger-1.0.jar")
    with pytest.raises(
        EnvironmentProblem, match=r"^stranger-1\.0\.jar, which Maven brought for a:b:1, has no checksum"
    ):
        fetch("a:b:1", tmp_path / "cache")


def test_jar_altered_in_the_cache_is_refused(mvn: Path, tmp_path: Path) -> None:
    jar = fetch("a:b:1", tmp_path / "cache")[1]
    jar.write_text("altered")
    with pytest.raises(
        EnvironmentProblem, match=rf"^{jar.name} of a:b:1 has SHA-256 .* Delete .*b-1, and fetch it again"
    ):
        fetch("a:b:1", tmp_path / "cache")


def test_every_jar_of_the_client_is_pinned() -> None:
    pinned = [line.split() for line in CHECKSUMS.read_text().splitlines()]
    assert all(len(checksum) == 64 for checksum, _ in pinned)
    assert "kafka-clients-3.9.2.jar" in {name for _, name in pinned}
    assert maven.KAFKA_CLIENTS.endswith("kafka-clients:3.9.2")
