"""The factory opens the backend that the settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import EnvironmentProblem, MissingDependency
from tidegate.logs import FileLogSettings, KafkaLog, KafkaLogSettings, SegmentLog, open_log
from tidegate.logs.factory import has_shared_writers
from tidegate.logs.kafka_security import KafkaSecurity, Tls


def test_files_are_opened_in_the_folder(tmp_path: Path) -> None:
    log = open_log(FileLogSettings(), tmp_path / "log")
    assert isinstance(log, SegmentLog)
    assert not (tmp_path / "log").exists()
    log.create("gps")
    assert (tmp_path / "log" / "gps" / "generation").is_file()


def test_kafka_is_opened_without_connecting(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    log = open_log(KafkaLogSettings("127.0.0.1:1"), tmp_path)
    assert isinstance(log, KafkaLog)
    log.close()


def test_kafka_without_its_client_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    with pytest.raises(MissingDependency, match=r"tidegate\[kafka\]"):
        open_log(KafkaLogSettings("127.0.0.1:1"), tmp_path)


def test_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    settings = KafkaLogSettings("127.0.0.1:1", KafkaSecurity(tls=Tls(ca=str(tmp_path / "none.pem"))))
    with pytest.raises(EnvironmentProblem, match=r"none\.pem"):
        open_log(settings, tmp_path)


def test_only_files_need_a_lock_for_their_writer() -> None:
    assert not has_shared_writers(FileLogSettings())
    assert has_shared_writers(KafkaLogSettings("127.0.0.1:1"))
