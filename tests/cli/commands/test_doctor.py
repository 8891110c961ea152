"""`tidegate doctor` says what is missing and how to get it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.ports import free_port
from tidegate.cli.commands import doctor
from tidegate.cli.main import app

runner = CliRunner()


def test_everything_is_looked_at() -> None:
    told = json.loads(runner.invoke(app, ["doctor", "--json", "--port", str(free_port())]).stdout)
    assert [each["what"] for each in told] == [
        "python",
        "java",
        "pyarrow",
        "pyspark",
        "connector",
        "port",
        "disk",
        "folder",
    ]
    assert all(each["remedy"] == "" for each in told if each["ok"])


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        shown = runner.invoke(app, ["doctor", "--port", str(port)])
    assert shown.exit_code == 1
    assert f"MISSING  port       {port}: Address already in use" in shown.stdout
    assert "choose another one with --port" in shown.stdout


def test_no_port_is_no_port() -> None:
    assert doctor.free_port(70_000).found == "70000 is no port"


def test_a_missing_java_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = doctor.java()
    assert not found.ok
    assert found.found == f"no {tmp_path}/bin/java"
    assert "openjdk-17" in found.remedy


def test_an_old_java_is_not_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = doctor.java()
    assert (found.ok, found.found) == (False, "version 11")


def test_a_missing_package_names_its_extra() -> None:
    found = doctor.package("no_such_package", "spark")
    assert found == doctor.Finding("no_such_package", False, "not installed", "pip install 'tidegate[spark]'")


def test_a_folder_that_is_not_there_yet_counts_as_its_parent(tmp_path: Path) -> None:
    assert str(tmp_path) in doctor.disk(tmp_path / "a" / "b").found


def test_a_java_that_compiles_nothing_is_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = doctor.connector()
    assert (found.ok, found.found) == (False, "not compiled, and no javac: services run in micro-batches only")
    assert found.optional
    assert "install a JDK" in found.remedy


def test_a_missing_connector_alone_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = doctor.Finding("connector", False, "not compiled", "install a JDK", optional=True)
    monkeypatch.setattr(doctor, "examine", lambda _, __: [doctor.Finding("python", True, "3.13"), slow])
    shown = runner.invoke(app, ["doctor"])
    assert shown.exit_code == 0
    assert "slower   connector  not compiled\n                    install a JDK" in shown.stdout
