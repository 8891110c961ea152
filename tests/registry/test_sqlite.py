"""The registry in a SQLite file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.conftest import LARGE_EXAMPLES
from tests.registry.test_definitions import CITY
from tidegate import RegistryError
from tidegate.registry import SqliteRegistry
from tidegate.services import Definitions, from_dict, loads


def test_file_that_is_not_a_registry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to look at it" * 100)
    with pytest.raises(RegistryError, match=r"expected a registry in .*: file is not a database"):
        SqliteRegistry(tmp_path / "text.db")
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryError, match="can't make the folder of"):
        SqliteRegistry(tmp_path / "file" / "registry.db")


def test_file_has_a_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    SqliteRegistry(path).close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.db")
    registry.apply(CITY)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "registry.db": 0o600,
        "registry.db-wal": 0o600,
        "registry.db-shm": 0o600,
    }
    registry.close()


def test_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(RegistryError, match=r"can't use the registry in '.*folder': unable to open database file"):
        SqliteRegistry(tmp_path / "folder")


def test_change_that_waits_for_a_lock_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.registry.sqlite.BUSY_TIMEOUT_S", 0.02)
    registry = SqliteRegistry(tmp_path / "registry.db")
    other = sqlite3.connect(tmp_path / "registry.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegistryError, match=r"can't use the registry in '.*registry\.db': database is locked"):
        registry.apply(CITY)
    other.close()
    assert registry.apply(CITY)
    registry.close()


def test_opening_waits_for_a_process_that_writes_the_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect(tmp_path / "registry.db")
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def close_on_third_wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            other.close()

    # Replaces `time` in this module only: threads of other tests also sleep.
    clock = SimpleNamespace(sleep=close_on_third_wait, monotonic=time.monotonic)
    monkeypatch.setattr("tidegate.registry.sqlite.time", clock)
    registry = SqliteRegistry(tmp_path / "registry.db")
    assert (len(waits), registry.revision()) == (3, 0)
    registry.close()


def test_opening_a_locked_new_file_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.registry.sqlite.BUSY_TIMEOUT_S", 0.02)
    other = sqlite3.connect(tmp_path / "registry.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegistryError, match=r"can't use the registry in '.*registry\.db': database is locked"):
        SqliteRegistry(tmp_path / "registry.db")
    other.close()


def test_definitions_survive_closing(tmp_path: Path) -> None:
    first = SqliteRegistry(tmp_path / "registry.db")
    first.apply(CITY)
    first.close()
    second = SqliteRegistry(tmp_path / "registry.db")
    assert second.definitions() == CITY
    second.close()


def test_threads_apply_concurrently(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.db")

    def apply(n: int) -> None:
        for m in range(5):
            registry.apply(from_dict({"streams": {f"s{n}-{m}": {"schema": {"a": "bool"}}}}))

    threads = [Thread(target=apply, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(registry.streams()), registry.revision()) == (20, 20)
    registry.close()


SCRIPT = """
import sys
from tidegate.registry import SqliteRegistry
from tidegate.services import from_dict
path, me = sys.argv[1:]
registry = SqliteRegistry(path)
sys.stdin.readline()
for n in range(15):
    registry.apply(from_dict({"streams": {
        f"{me}{n}": {"schema": {"a": "bool"}},
        "shared": {"schema": {"a": "bool"}, "description": f"{me} {n}"},
    }}))
registry.close()
"""


def test_processes_apply_concurrently(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    processes = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), name], stdin=subprocess.PIPE, text=True)
        for name in ("left", "right")
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0, 0]
    registry = SqliteRegistry(path)
    assert len(registry.streams()) == 31
    assert registry.revision() == registry.stream("shared").version == 30
    assert [past.version for past in registry.history("shared")] == list(range(1, 31))
    registry.close()


class Model(RuleBasedStateMachine):
    """Random changes of streams: the registry always agrees with a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.registry = SqliteRegistry(Path(self.folder.name) / "registry.db")
        self.stored: dict[str, int] = {}
        self.versions: dict[str, int] = {}
        self.revision = 0

    def teardown(self) -> None:
        self.registry.close()
        self.folder.cleanup()

    @rule(applied=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), max_size=3), prune=st.booleans())
    def apply(self, applied: dict[str, int], prune: bool) -> None:
        changes = self.registry.apply(_streams(applied), prune=prune)
        gone = {name for name in self.stored if prune and name not in applied}
        altered = {name for name in applied if self.stored.get(name) != applied[name]}
        assert {*changes.added, *changes.changed} == altered
        assert {*changes.removed} == gone
        for name in altered | gone:
            self.versions[name] = self.versions.get(name, 0) + 1
        self.stored = {name: n for name, n in {**self.stored, **applied}.items() if name not in gone}
        self.revision += bool(altered or gone)

    @rule(name=st.sampled_from("abcd"))
    def remove(self, name: str) -> None:
        if name in self.stored:
            self.registry.remove(name)
            del self.stored[name]
            self.versions[name] += 1
            self.revision += 1

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert self.registry.definitions() == _streams(self.stored)
        assert {name: stream.version for name, stream in self.registry.streams().items()} == {
            name: self.versions[name] for name in self.stored
        }
        assert self.registry.revision() == self.revision


def _streams(partitions: dict[str, int]) -> Definitions:
    document = {name: {"schema": {"a": "bool"}, "partitions": n} for name, n in partitions.items()}
    return from_dict({"streams": document})


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=LARGE_EXAMPLES // 3, stateful_step_count=12, deadline=None)


def test_error_names_file_and_line(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.db")
    with pytest.raises(Exception, match=r"a\.yaml:1: services\.s\.from"):
        registry.apply(loads("services: {s: {from: nothing}}", "a.yaml"))
    registry.close()
