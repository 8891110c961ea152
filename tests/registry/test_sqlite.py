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


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to look at it" * 100)
    with pytest.raises(RegistryError, match=r"expected a registry in .*: file is not a database"):
        SqliteRegistry(tmp_path / "text.db")
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryError, match="can't make the folder of"):
        SqliteRegistry(tmp_path / "file" / "registry.db")


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    SqliteRegistry(path).close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_nobody_else_reads_what_webhooks_are_signed_with(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.db")
    registry.apply(CITY)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "registry.db": 0o600,
        "registry.db-wal": 0o600,
        "registry.db-shm": 0o600,
    }
    registry.close()


def test_a_file_that_can_not_be_used_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(RegistryError, match=r"can't use the registry in '.*folder': unable to open database file"):
        SqliteRegistry(tmp_path / "folder")


def test_a_change_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.registry.sqlite.BUSY_TIMEOUT_S", 0.02)
    registry = SqliteRegistry(tmp_path / "registry.db")
    other = sqlite3.connect(tmp_path / "registry.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegistryError, match=r"can't use the registry in '.*registry\.db': database is locked"):
        registry.apply(CITY)
    other.close()
    assert registry.apply(CITY)
    registry.close()


def test_a_new_file_that_another_writes_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect(tmp_path / "registry.db")
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def end_on_the_third(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            other.close()

    # Not the function of the module `time`: threads of other tests sleep, too.
    clock = SimpleNamespace(sleep=end_on_the_third, monotonic=time.monotonic)
    monkeypatch.setattr("tidegate.registry.sqlite.time", clock)
    registry = SqliteRegistry(tmp_path / "registry.db")
    assert (len(waits), registry.revision()) == (3, 0)
    registry.close()


def test_a_new_file_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.registry.sqlite.BUSY_TIMEOUT_S", 0.02)
    other = sqlite3.connect(tmp_path / "registry.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegistryError, match=r"can't use the registry in '.*registry\.db': database is locked"):
        SqliteRegistry(tmp_path / "registry.db")
    other.close()


def test_it_survives_being_closed(tmp_path: Path) -> None:
    first = SqliteRegistry(tmp_path / "registry.db")
    first.apply(CITY)
    first.close()
    second = SqliteRegistry(tmp_path / "registry.db")
    assert second.definitions() == CITY
    second.close()


def test_threads_apply_at_once(tmp_path: Path) -> None:
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
import time
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


def test_processes_apply_at_once(tmp_path: Path) -> None:
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
    """Streams and services that come, change and go: the registry holds what a dict would."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.registry = SqliteRegistry(Path(self.folder.name) / "registry.db")
        self.held: dict[str, int] = {}
        self.versions: dict[str, int] = {}
        self.revision = 0

    def teardown(self) -> None:
        self.registry.close()
        self.folder.cleanup()

    @rule(given=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), max_size=3), prune=st.booleans())
    def apply(self, given: dict[str, int], prune: bool) -> None:
        changes = self.registry.apply(_streams(given), prune=prune)
        gone = {name for name in self.held if prune and name not in given}
        altered = {name for name in given if self.held.get(name) != given[name]}
        assert {*changes.added, *changes.changed} == altered
        assert {*changes.removed} == gone
        for name in altered | gone:
            self.versions[name] = self.versions.get(name, 0) + 1
        self.held = {name: n for name, n in {**self.held, **given}.items() if name not in gone}
        self.revision += bool(altered or gone)

    @rule(name=st.sampled_from("abcd"))
    def remove(self, name: str) -> None:
        if name in self.held:
            self.registry.remove(name)
            del self.held[name]
            self.versions[name] += 1
            self.revision += 1

    @invariant()
    def holds_what_the_model_does(self) -> None:
        assert self.registry.definitions() == _streams(self.held)
        assert {name: each.version for name, each in self.registry.streams().items()} == {
            name: self.versions[name] for name in self.held
        }
        assert self.registry.revision() == self.revision


def _streams(partitions: dict[str, int]) -> Definitions:
    document = {name: {"schema": {"a": "bool"}, "partitions": n} for name, n in partitions.items()}
    return from_dict({"streams": document})


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=LARGE_EXAMPLES // 3, stateful_step_count=12, deadline=None)


def test_lines_of_the_file_are_told(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.db")
    with pytest.raises(Exception, match=r"a\.yaml:1: services\.s\.from"):
        registry.apply(loads("services: {s: {from: nothing}}", "a.yaml"))
    registry.close()
