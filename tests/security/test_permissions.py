"""Other users of the machine can't read a data folder, for any umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.running import until
from tests.security import processes
from tidegate.cli.commands import doctor
from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.permissions import open_to_others, tighten
from tidegate.cli.profile import Profile

SERVICES = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid, source: {http: {}}}
services:
  gps: {from: gps_taxi, mask: {vid: hmac}}
  flow:
    from: gps
    pipeline: [{aggregate: {count: flow, by: [vid], window: {length: 10s, slide: 10s}, emit: updates}}]
"""


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Return the permissions of a folder and of all below it."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        try:
            found[str(path.relative_to(folder))] = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:
            continue  # expired meanwhile
    return found


def test_folder_that_commands_create_is_private(tmp_path: Path, open_umask: None) -> None:
    data = tmp_path / "data"
    processes.create_key(data, "root", "admin")
    services = tmp_path / "services.yaml"
    services.write_text(SERVICES)
    assert processes.tidegate("apply", services, data=data).returncode == 0
    assert {name: oct(mode) for name, mode in modes(data).items() if mode & 0o077} == {}


def test_gateway_tightens_what_an_older_version_left_open(tmp_path: Path, open_umask: None) -> None:
    data = tmp_path / "data"
    processes.create_key(data, "root", "admin")
    (data / "log" / "gps" / "0").mkdir(parents=True)
    (data / "log" / "gps" / "0" / "00000000000000000000.log").write_bytes(b"{}\n")
    (data / "mask.key").write_bytes(b"secret")
    (data / "registry.sqlite").chmod(0o666)
    for folder in (data, *data.rglob("*/")):
        folder.chmod(0o777)
    with processes.gateway(data):
        assert {name: oct(mode) for name, mode in modes(data).items() if mode & 0o077} == {}


def test_folder_with_files_of_others_stays_open_and_ours_in_it_is_closed(tmp_path: Path, open_umask: None) -> None:
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "secret").write_text("ours")
    tmp_path.chmod(0o755)
    tighten(tmp_path, shared=False)
    assert {name: oct(mode) for name, mode in modes(tmp_path).items()} == {
        ".": "0o755",
        "notes.txt": "0o666",
        "log": "0o700",
        "log/secret": "0o600",
    }


def test_symbolic_link_in_the_folder_changes_nothing_elsewhere(tmp_path: Path, open_umask: None) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "elsewhere" / "file").write_text("")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "space").mkdir()
    (tmp_path / "data" / "space" / "file").symlink_to(tmp_path / "elsewhere" / "file")
    tighten(tmp_path / "data", shared=False)
    assert modes(tmp_path / "elsewhere") == {".": 0o755, "file": 0o666}


def test_folder_that_a_cluster_shares_stays_open_to_its_group(tmp_path: Path, open_umask: None) -> None:
    (tmp_path / "log").mkdir()
    tmp_path.chmod(0o777)
    Home(tmp_path, Profile(shared=True)).protect()
    assert {name: oct(mode) for name, mode in modes(tmp_path).items()} == {".": "0o770", "log": "0o770"}


def test_doctor_reports_a_folder_that_others_can_read(tmp_path: Path) -> None:
    assert doctor.folder(tmp_path).found == f"no data in {tmp_path} yet"
    (tmp_path / "registry.sqlite").touch(mode=0o644)
    tmp_path.chmod(0o755)
    told = doctor.folder(tmp_path)
    assert not told.ok
    assert told.found == f"other users can access {tmp_path / 'registry.sqlite'}"
    assert f"chmod 700 {tmp_path}" in told.remedy
    tmp_path.chmod(0o700)
    assert open_to_others(tmp_path) == []
    assert doctor.folder(tmp_path).found == f"{tmp_path} is private"


def test_file_of_another_user_is_named_in_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another user's file can only be made by root: so let `chmod` refuse, as it does for one.
    code = (
        "import pathlib, sys, os\n"
        "from tidegate.cli.data_folder.permissions import tighten\n"
        "def refuse(self, mode): raise PermissionError\n"
        "pathlib.Path.chmod = refuse\n"
        "tighten(pathlib.Path(sys.argv[1]), shared=False)\n"
    )
    (tmp_path / "log").mkdir(mode=0o755)
    shown = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "can't protect the data folder" in shown.stdout + shown.stderr
    assert "run Tidegate as its owner" in shown.stdout + shown.stderr


@pytest.mark.spark
@pytest.mark.xdist_group("security-up-permissions")
def test_everything_that_up_writes_is_private(tmp_path: Path, open_umask: None) -> None:
    data = tmp_path / "data"
    with processes.up(data, services=SERVICES) as running, running.client() as http:
        for n in range(5):
            event = {"vid": f"B{n}", "speed": 7.0, "time": f"2026-01-01T00:00:{n:02}Z"}
            assert http.post("/v1/streams/gps_taxi/events", json=event).status_code == 200
        until(lambda: len(http.get("/v1/services/gps/events?from=beginning").json()["events"]) == 5, "the events")
        until(lambda: any((data / "checkpoints").rglob("*")), "a checkpoint")
        found = modes(data)
    assert {name: oct(mode) for name, mode in (found | modes(data)).items() if mode & 0o077} == {}
    assert any(name.startswith("log/gps/") for name in found)
    assert any(name.startswith("checkpoints/") for name in found)
    assert "registry.sqlite-wal" in found
