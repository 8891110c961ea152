"""Compilation of the connector: cached by content, part of a wheel, with clear errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tidegate.errors import EnvironmentProblem
from tidegate.pipelines.connector import archive, build
from tidegate.services.quality import LATENCY_BOUNDS_S

pytestmark = pytest.mark.spark  # needs a JDK, as Spark does


def test_connector_is_compiled_once_per_content_to_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_HERE", tmp_path / "package")
    assert build.find() is None
    first = build.jar()
    written = first.stat().st_mtime_ns
    assert build.jar() == build.find() == first
    assert first.stat().st_mtime_ns == written
    assert {"tidegate/LogSource.class", "tidegate/ServiceWriter.class"} <= set(zipfile.ZipFile(first).namelist())
    assert build.compile_to(tmp_path / "again.jar").read_bytes() == first.read_bytes()


@pytest.mark.kafka  # Maven fetches its client
def test_packaged_jar_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = {build.jar().name, build.kafka_jars()[0].name, build.loopback_jar().name}
    monkeypatch.setattr(build, "_HERE", tmp_path)
    (tmp_path / "tidegate-connector-0000.jar").touch()  # of an older content
    packaged = build.package()
    assert {jar.name for jar in packaged} == ours
    assert build.find() == packaged[0]
    assert build.kafka_jars()[0] == packaged[1]
    assert build.loopback_jar() == packaged[2]
    assert sorted(tmp_path.glob("*.jar")) == packaged


def test_missing_compiler_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="there is no javac to do it: install a JDK 17 or newer"):
        build.compile_to(tmp_path / "a.jar")


def test_missing_connector_is_the_obstacle_to_real_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_HERE", tmp_path / "package")
    assert build.obstacle() == "", "javac will compile it"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert build.obstacle().startswith("the connector is not compiled and there is no javac: install a JDK 17")
    (build.cache() / build._name()).parent.mkdir()
    (build.cache() / build._name()).touch()
    assert build.obstacle(), "what keeps its shuffle on loopback is missing"
    (build.cache() / build._loopback_name()).touch()
    assert build.obstacle() == "", "both were compiled before"


def test_netty_finds_what_keeps_servers_on_loopback_by_its_name_in_the_jar(tmp_path: Path) -> None:
    with zipfile.ZipFile(build.compile_loopback_to(tmp_path / "loopback.jar")) as packed:
        (service,) = [name for name in packed.namelist() if name.startswith("META-INF/services/")]
        assert service == "META-INF/services/io.netty.bootstrap.ChannelInitializerExtension"
        name = packed.read(service).decode().strip()
        assert f"{name.replace('.', '/')}.class" in packed.namelist()


def test_compiler_error_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "Broken.java").write_text("class Broken { int x = ; }")
    monkeypatch.setattr(build, "_SOURCES", tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"does not compile with .*\n.*illegal start of expression") as caught:
        build.compile_to(tmp_path / "a.jar")
    assert "Broken.java" in str(caught.value)
    assert not (tmp_path / "a.jar").exists()


def test_latencies_are_counted_by_the_same_bounds_on_both_sides() -> None:
    java = (build._SOURCES / "tidegate" / "Histogram.java").read_text()
    bounds = re.search(r"long\[\] BOUNDS = \{([^}]+)\}", java)
    assert bounds is not None
    assert tuple(int(each) / 1e6 for each in bounds[1].split(",")) == LATENCY_BOUNDS_S


def test_existing_archive_of_classes_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert archive.option() == ""
    archive.path().parent.mkdir(parents=True)
    archive.path().touch()
    assert archive.option().startswith(f"-XX:SharedArchiveFile={archive.path()} ")


def test_java_that_refuses_the_archive_starts_without_a_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive.path().parent.mkdir(parents=True)
    archive.path().write_bytes(b"not an archive")
    ran = subprocess.run(["java", *archive.option().split(), "--version"], capture_output=True, text=True, check=True)
    plain = subprocess.run(["java", "-Xshare:off", "--version"], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (plain.stdout, plain.stderr)


@pytest.mark.parametrize(
    "trial",
    ["import sys; open(sys.argv[1], 'w'); sys.exit(1)", "", "import signal; signal.pause()"],
    ids=["fails", "writes none", "hangs"],
)
def test_failed_archive_leaves_no_files(trial: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(archive, "_TRIAL", trial)
    monkeypatch.setattr(archive, "_PATIENCE_S", 1)
    assert not archive.make()
    assert list(archive.path().parent.iterdir()) == []
    assert archive.option() == ""


def test_another_java_has_another_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = archive.path()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive.path() != before


def test_reinstalled_jars_have_another_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark.jar").write_bytes(b"jar")
    monkeypatch.setattr(build, "spark_jars", lambda: tmp_path)
    os.utime(tmp_path / "spark.jar", (1, 1))
    before = archive.path()
    assert archive.path() == before
    os.utime(tmp_path / "spark.jar", (2, 2))
    assert archive.path() != before
