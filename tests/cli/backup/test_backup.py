"""Backups of a data folder, made while it is written to, and their restore."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.gateway.running import World, record
from tidegate.cli.backup import manifest
from tidegate.cli.backup.saving import log_order
from tidegate.cli.data_folder.home import Home
from tidegate.cli.main import app
from tidegate.logs import Cursor, SegmentLog
from tidegate.logs.copying import CONTINUE_AT_BYTES
from tidegate.services import loads
from tidegate.subscriptions import SubscriptionRecord

CHAIN = """
streams: {a: {schema: {n: int64}}}
services:
  last: {from: middle}
  middle: {from: a}
"""


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [*map(str, args)])


def problem(*args: object) -> str:
    result = run(*args)
    assert result.exception is not None, result.output
    return str(result.exception)


def filled(folder: Path) -> World:
    world = World(folder)
    world.append(200)
    world.registry.subscribe(SubscriptionRecord("sub_1", "gps"), None)
    world.registry.acknowledge("sub_1", world.log.read("gps", world.log.begin("gps"), 50).cursor.text)
    (folder / "mask.key").write_text("hush")
    (folder / "sources").mkdir()
    (folder / "sources" / "gps.json").write_text("{}")
    checkpoint = folder / "checkpoints" / "gps" / "v1" / "main" / "commits"
    checkpoint.mkdir(parents=True)
    (checkpoint / "0").write_text("v1")
    (checkpoint / ".tmp1").write_text("half")
    return world


def test_restored_folder_has_what_the_backup_had(tmp_path: Path) -> None:
    world = filled(tmp_path / "data")
    cursor = world.registry.subscription("sub_1").cursor
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            world.append(10)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        made = run("backup", tmp_path / "saved", "--data", tmp_path / "data")
    finally:
        stop.set()
        loading.join()
    assert "keys are not in it" in made.output, made.output
    assert stat.S_IMODE((tmp_path / "saved").stat().st_mode) == 0o700
    assert all(not stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (tmp_path / "saved").rglob("*"))
    result = run("restore", tmp_path / "saved", "--data", tmp_path / "new")
    assert result.exit_code == 0, result.output
    shutil.copy2(tmp_path / "data" / "secrets.key", tmp_path / "new" / "secrets.key")
    home = Home(tmp_path / "new")
    with closing(home.registry()) as registry, closing(home.log()) as log:
        assert registry.services().keys() == world.registry.services().keys()
        assert registry.subscription("sub_1").cursor == cursor
        records: list[bytes] = []
        at = log.begin("gps")
        while (read := log.read("gps", at, 1_000)).records:
            records += read.records
            at = read.cursor
        assert len(records) >= 200
        assert records == [record(n) for n in range(len(records))]
        assert "_audit" in log.streams()
    assert (tmp_path / "new" / "sources" / "gps.json").exists()
    commits = tmp_path / "new" / "checkpoints" / "gps" / "v1" / "main" / "commits"
    assert [path.name for path in commits.iterdir()] == ["0"]
    assert not (tmp_path / "new" / "mask.key").exists()
    world.log.close()
    world.registry.close()


def test_reader_that_has_seen_more_than_the_backup_gets_a_gap_and_every_new_event(tmp_path: Path) -> None:
    world = filled(tmp_path / "data")
    behind = world.log.end("gps")
    assert run("backup", tmp_path / "saved", "--data", tmp_path / "data").exit_code == 0
    world.append(100)
    ahead = world.log.end("gps")
    assert run("restore", tmp_path / "saved", "--data", tmp_path / "new").exit_code == 0
    with closing(SegmentLog(tmp_path / "new" / "log")) as log:
        log.append("gps", "gps_taxi.0", [record(n) for n in range(900, 905)])
        for cursor in (behind, ahead):
            found: list[bytes] = []
            read = log.read("gps", cursor, 100)
            found += read.records
            gaps = list(read.gaps)
            assert found == [record(n) for n in range(900, 905)]
            assert [gap.resumed_at for gap in gaps] == [CONTINUE_AT_BYTES]
        offsets = {**log.begin("gps").offsets}
        assert offsets == {"gps_taxi.0": 0}, "the past is still there"
        assert log.read("gps", Cursor(behind.generation, offsets), 3).records == tuple(record(n) for n in range(3))
    world.log.close()
    world.registry.close()


def test_keys_are_in_a_backup_if_they_are_asked_for(tmp_path: Path) -> None:
    world = filled(tmp_path / "data")
    made = run("backup", tmp_path / "saved", "--data", tmp_path / "data", "--with-keys")
    assert "keys are not in it" not in made.output
    assert run("restore", tmp_path / "saved", "--data", tmp_path / "new").exit_code == 0
    assert (tmp_path / "new" / "mask.key").read_text() == "hush"
    assert stat.S_IMODE((tmp_path / "new" / "mask.key").stat().st_mode) == 0o600
    world.log.close()
    world.registry.close()


def test_what_can_not_be_backed_up_or_restored_is_told(tmp_path: Path) -> None:
    world = filled(tmp_path / "data")
    data, saved = ("--data", tmp_path / "data"), tmp_path / "saved"
    assert "is inside the data folder" in problem("backup", tmp_path / "data" / "saved", *data)
    assert "there is no Tidegate in" in problem("backup", saved, "--data", tmp_path / "none")
    assert run("backup", saved, *data).exit_code == 0
    assert "exists already; choose the name of a new folder" in problem("backup", saved, *data)
    assert "is not empty: it has" in problem("restore", saved, *data)
    assert "has no backup" in problem("restore", tmp_path, "--data", tmp_path / "new")
    (tmp_path / "kafka.yaml").write_text("log: {kafka: 'host:1'}")
    with_kafka = ("--data", tmp_path / "new", "--profile", tmp_path / "kafka.yaml")
    assert "the backup is of a log of files, but the profile has kafka" in problem("restore", saved, *with_kafka)
    world.log.close()
    world.registry.close()


@pytest.mark.parametrize("damage", ["changed", "missing", "outside", "format"])
def test_damaged_backup_is_refused_before_anything_is_written(damage: str, tmp_path: Path) -> None:
    world = filled(tmp_path / "data")
    saved = tmp_path / "saved"
    assert run("backup", saved, "--data", tmp_path / "data").exit_code == 0
    (segment,) = (saved / "log" / "gps" / "gps_taxi.0").glob("*.log")
    document = json.loads((saved / manifest.NAME).read_text())
    match damage:
        case "changed":
            segment.write_bytes(segment.read_bytes().replace(b"B7", b"B8"))
            expected = "is damaged: 'log/gps/gps_taxi.0/"
        case "missing":
            segment.unlink()
            expected = "is not complete: it has no file"
        case "outside":
            document["files"]["../evil"] = [0, ""]
            expected = "is not complete: it has no file '../evil'"
        case _:
            document["format"] = 99
            expected = "has format 99; this version of Tidegate reads 1"
    (saved / manifest.NAME).write_text(json.dumps(document))
    assert expected in problem("restore", saved, "--data", tmp_path / "new")
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())
    world.log.close()
    world.registry.close()


def test_definitions_that_change_during_a_backup_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(tmp_path / "data")
    real = os.utime

    def change(*args: object, **more: object) -> None:
        if "/saved/log/" in str(args[0]):
            world.registry.apply(loads("streams: {other: {schema: {n: int64}}}"))
        real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "utime", change)
    assert "definitions were changed during the backup" in problem(
        "backup", tmp_path / "saved", "--data", tmp_path / "data"
    )
    assert "has no backup" in problem("restore", tmp_path / "saved", "--data", tmp_path / "new")
    world.log.close()
    world.registry.close()


def test_outputs_are_copied_before_their_inputs() -> None:
    streams = ["a", "a.quarantine", "last", "last.quarantine", "middle", "middle.quarantine", "_status"]
    order = log_order(loads(CHAIN), streams)
    assert order == ["last", "last.quarantine", "middle", "middle.quarantine", "a", "a.quarantine", "_status"]
