"""scripts/need-programs installs missing programs, or names them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "need-programs"
ALL = "chromium fonts-dejavu-core mosquitto postgresql prometheus"
LEFT_OUT = [f"Tests are left out for want of: {ALL}", f"  Debian, Ubuntu: apt-get install {ALL}"]


def tool(folder: Path, name: str, does: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{does}\n")
    (folder / name).chmod(0o755)


def test_make_clean_removes_what_git_ignores(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    kept = tmp_path / "src" / "tidegate" / "pipelines" / "connector"
    kept.mkdir(parents=True)
    (kept / "build.py").touch()
    ignored = [line.replace("*", "some") for line in (ROOT / ".gitignore").read_text().split()]
    for each in ignored:
        place = kept / each if each.endswith(".jar") else tmp_path / each
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if each.endswith("/") else place.touch()
    assert len(list(tmp_path.iterdir())) > 12
    subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, check=True)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"Makefile", "src/tidegate/pipelines/connector/build.py"}
    assert {path.name for path in tmp_path.iterdir()} == {"Makefile", "src", "benchmarks"}


def test_missing_programs_are_installed_or_named(tmp_path: Path) -> None:
    def said() -> list[str]:
        words = [shutil.which("bash") or "bash", str(SCRIPT)]
        env = {"PATH": str(tmp_path), "PLACES": ""}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stderr.splitlines()

    (tmp_path / "env").symlink_to(shutil.which("env") or "env")
    tool(tmp_path, "id", "echo 0")
    assert said() == LEFT_OUT
    tool(tmp_path, "apt-get", "exit 1")
    assert said() == [f"Installing for the tests (once): {ALL}", *LEFT_OUT]
    copy = shutil.which("cp")
    tool(
        tmp_path,
        "apt-get",
        f"for each in chromium mosquitto initdb promtool; do {copy} {tmp_path}/id {tmp_path}/$each; done",
    )
    assert said() == [f"Installing for the tests (once): {ALL}"]
    (tmp_path / "mosquitto").unlink()
    tool(tmp_path, "apt-get", "exit 1")
    assert said()[0] == "Installing for the tests (once): mosquitto"
    tool(tmp_path, "mosquitto", "exit 0")
    assert said() == [], "all is there"
