"""Secrets of a profile are references, and no message or repr shows a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.profile.secret_reference import MAX_SECRET_BYTES, read_secret
from tidegate.errors import EnvironmentProblem


def test_environment_variable_is_read_at_the_time_of_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = read_secret("env:PLANT_PASSWORD", "p.yaml: password", tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"password: the environment variable .PLANT_PASSWORD. is not set"):
        reference.reveal()
    monkeypatch.setenv("PLANT_PASSWORD", "")
    with pytest.raises(EnvironmentProblem, match="is empty; set it"):
        reference.reveal()
    monkeypatch.setenv("PLANT_PASSWORD", "first")
    assert reference.reveal() == "first"
    monkeypatch.setenv("PLANT_PASSWORD", "second")
    assert reference.reveal() == "second"
    assert "second" not in repr(reference)


def test_file_is_relative_to_the_profile_and_loses_its_line_end(tmp_path: Path) -> None:
    reference = read_secret("file:secrets/plant", "p.yaml: password", tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"can't read the file '.*secrets/plant': No such file"):
        reference.reveal()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "plant").write_text("s3cret\n")
    assert reference.reveal() == "s3cret"
    assert "s3cret" not in repr(reference)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty; write"), (b"\xff\xfe", "not UTF-8"), (b"x" * (MAX_SECRET_BYTES + 1), "more than")],
)
def test_file_without_a_usable_secret_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(EnvironmentProblem, match=message):
        read_secret("file:secret", "p.yaml: password", tmp_path).reveal()


@pytest.mark.parametrize(
    "reference", ["hunter2", "env:", "env:A B", "file:", "file:a\0b", 17, None, {"env": "hunter2"}]
)
def test_value_that_is_no_reference_is_refused_and_not_shown(tmp_path: Path, reference: object) -> None:
    with pytest.raises(EnvironmentProblem, match="expected a reference to a secret") as caught:
        read_secret(reference, "p.yaml: password", tmp_path)
    assert "hunter2" not in str(caught.value)
