"""The files of `deploy/` use commands, options, paths, extras and targets that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tidegate.cli.main import app
from tidegate.cli.profile import load_profile
from tidegate.logs.factory import KafkaLogSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "tidegate.service").read_text()
CONTAINER = (DEPLOY / "Containerfile").read_text()


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse a command line as the command itself does; an unknown option raises."""
    found: Any = typer.main.get_command(app)
    left = list(arguments)
    while hasattr(found, "commands"):
        found = found.commands[left.pop(0)]
    context = found.make_context(found.name, left)
    return dict(context.params)


def said(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)


def instructions(stage: str) -> list[tuple[str, str]]:
    """The instructions of a build stage, with continued lines joined."""
    lines = re.sub(r"^#.*\n", "", stage, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines.splitlines() if line.strip()]


def stages() -> list[list[tuple[str, str]]]:
    return [instructions(f"FROM {each}") for each in re.split(r"^FROM ", CONTAINER, flags=re.MULTILINE)[1:]]


def test_systemd_unit_runs_an_existing_command() -> None:
    (line,) = said("ExecStart")
    program, *arguments = shlex.split(line)
    assert program == "/opt/tidegate/bin/tidegate"
    assert "tidegate" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    options = parse(arguments)
    assert options["data"] == f"/var/lib/{said('StateDirectory')[0]}"
    assert options["profile"].startswith(f"/etc/{said('ConfigurationDirectory')[0]}/")
    assert options["host"] == "127.0.0.1"
    assert said("KillSignal") == ["SIGTERM"]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "tidegate.service"
    unit.write_text(UNIT.replace("/opt/tidegate/bin/tidegate", sys.executable))
    ran = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, str(unit) in ran.stderr) == (0, False), ran.stderr


def test_parse_refuses_an_unknown_option() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["up", "--prot", "8080"])


def test_container_runs_an_existing_command_without_root_or_compiler() -> None:
    build, run = stages()
    assert "-jdk" not in " ".join(text for _, text in run)
    assert any("jre-headless" in text for kind, text in run if kind == "RUN")
    users = [text for kind, text in run if kind == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    files = re.findall(r"(?:-r |python )((?:deploy|scripts)/\S+)", " ".join(text for _, text in build))
    assert len(files) == 3
    assert all((ROOT / each).is_file() for each in files)
    entry, command = (json.loads(text) for kind, text in run if kind in ("ENTRYPOINT", "CMD"))
    assert entry == ["/opt/tidegate/bin/python", "/opt/tidegate/entrypoint.py"]
    assert ("COPY", f"deploy/entrypoint.py {entry[1]}") in run
    options = parse(command)
    ((_, exposed),) = [each for each in run if each[0] == "EXPOSE"]
    ((_, health),) = [each for each in run if each[0] == "HEALTHCHECK"]
    assert options["port"] == int(exposed)
    assert "READY_URL" in health
    assert ("ENV", f"READY_URL=http://127.0.0.1:{exposed}/readyz") in run
    ((_, volume),) = [each for each in run if each[0] == "VOLUME"]
    assert options["data"] == volume


def test_compose_file_and_profile_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    ours = {name: each for name, each in document["services"].items() if each["image"] == "tidegate"}
    assert set(ours) == {"runner", "gateway"}
    for each in ours.values():
        options = parse(each["command"])
        assert f"./profile.yaml:{options['profile']}:ro" in each["volumes"]
        assert (DEPLOY / each["build"]["context"] / each["build"]["dockerfile"]).is_file()
        assert set(each["depends_on"]) < set(document["services"])
    profile = load_profile(str(DEPLOY / "profile.yaml"))
    monkeypatch.setenv("REGISTRY_PASSWORD", "hush")
    assert profile.database is not None
    assert profile.database.address() == "postgresql://tidegate:hush@registry/tidegate"
    assert profile.log == KafkaLogSettings("log:9092")
    environment = document["services"]["log"]["environment"]
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{profile.log.brokers}"


def test_commands_of_the_deploy_document_parse() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text()
    commands = re.findall(r"^tidegate (.*)$", text, re.MULTILINE) + re.findall(r" tidegate (keys .*?)   #", text)
    assert len(commands) == 3
    for each in commands:
        parse(shlex.split(each))


def test_commands_of_the_runbook_parse() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    commands = re.findall(r"^tidegate (.*?)(?: +#.*)?$", text, re.MULTILINE)
    commands += [each for each in re.findall(r"`tidegate ([^`]+)`", text) if " " in each]
    assert len(commands) > 12
    for each in commands:
        parse(shlex.split(each))
