"""`tidegate doctor`: each check and its advice."""

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


def test_all_checks_run_in_order() -> None:
    findings = json.loads(runner.invoke(app, ["doctor", "--json", "--port", str(free_port())]).stdout)
    assert [finding["what"] for finding in findings] == [
        "python",
        "java",
        "pyarrow",
        "pyspark",
        "connector",
        "port",
        "disk",
        "folder",
    ]
    assert all(finding["remedy"] == "" for finding in findings if finding["ok"])


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = runner.invoke(app, ["doctor", "--port", str(port)])
    assert result.exit_code == 1
    assert f"MISSING  port       {port}: Address already in use" in result.stdout
    assert "choose another one with --port" in result.stdout


def test_number_above_65535_is_no_port() -> None:
    assert doctor.free_port(70_000).found == "70000 is no port"


def test_missing_java_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = doctor.java()
    assert not finding.ok
    assert finding.found == f"no {tmp_path}/bin/java"
    assert "openjdk-17" in finding.remedy


def test_old_java_fails_the_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = doctor.java()
    assert (finding.ok, finding.found) == (False, "version 11")


def test_missing_package_names_its_extra() -> None:
    finding = doctor.package("no_such_package", "spark")
    assert finding == doctor.Finding("no_such_package", False, "not installed", "pip install 'tidegate[spark]'")


def test_missing_data_folder_is_checked_by_its_parent(tmp_path: Path) -> None:
    assert str(tmp_path) in doctor.disk(tmp_path / "a" / "b").found


def test_missing_compiler_is_an_optional_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    finding = doctor.connector()
    assert (finding.ok, finding.found) == (False, "not compiled, and no javac: services run in micro-batches only")
    assert finding.optional
    assert "install a JDK" in finding.remedy


def test_optional_finding_alone_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = doctor.Finding("connector", False, "not compiled", "install a JDK", optional=True)
    monkeypatch.setattr(doctor, "examine", lambda _, __: [doctor.Finding("python", True, "3.13"), slow])
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "slower   connector  not compiled\n                    install a JDK" in result.stdout
