"""What compiles the connector: cached by content, carried by a wheel, clear where it can't."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tidegate.errors import EnvironmentProblem
from tidegate.pipelines.connector import build

pytestmark = pytest.mark.spark  # needs a JDK, as Spark does


def test_it_is_compiled_once_for_each_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_HERE", tmp_path / "package")
    assert build.find() is None
    first = build.jar()
    written = first.stat().st_mtime_ns
    assert build.jar() == build.find() == first
    assert first.stat().st_mtime_ns == written
    assert {"tidegate/LogSource.class", "tidegate/ServiceWriter.class"} <= set(zipfile.ZipFile(first).namelist())


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    assert build.compile_to(tmp_path / "a.jar").read_bytes() == build.compile_to(tmp_path / "b.jar").read_bytes()


@pytest.mark.kafka  # Maven fetches its client
def test_a_packaged_jar_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_HERE", tmp_path)
    (tmp_path / "tidegate-connector-0000.jar").touch()  # of an older content
    packaged = build.package()
    assert build.find() == packaged[0]
    assert build.kafka_jars()[0] == packaged[1]
    assert sorted(tmp_path.glob("*.jar")) == packaged


def test_no_compiler_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="there is no javac to do it: install a JDK 17 or newer"):
        build.compile_to(tmp_path / "a.jar")


def test_an_error_of_the_compiler_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "Broken.java").write_text("class Broken { int x = ; }")
    monkeypatch.setattr(build, "_SOURCES", tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"does not compile with .*\n.*illegal start of expression") as caught:
        build.compile_to(tmp_path / "a.jar")
    assert "Broken.java" in str(caught.value)
    assert not (tmp_path / "a.jar").exists()
