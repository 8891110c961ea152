"""Limits of the files that remote definitions may read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.errors import SourceError
from tidegate.services.roots import Confinement, open_any


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "open" / "inner").mkdir(parents=True)
    (tmp_path / "open" / "a.csv").write_text("open")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "open" / "inside.csv").symlink_to(tmp_path / "open" / "a.csv")
    return tmp_path


def read(confinement: Confinement, stated: Path, path: Path | None = None) -> str:
    with confinement.opener(str(stated))(path or stated) as file:
        return file.read().decode()


def test_file_below_a_root_is_read_directly_and_through_a_link_inside(folder: Path) -> None:
    confinement = Confinement((folder / "open",))
    for name in ("a.csv", "inside.csv"):
        assert confinement.problem(str(folder / "open" / name)) is None
        assert read(confinement, folder / "open" / name) == "open"
    assert confinement.problem(str(folder / "open" / "*.csv")) is None
    with open_any(folder / "secret") as file:
        assert file.read() == b"secret", "files of the operator are not confined"


def test_root_can_be_a_symbolic_link(folder: Path) -> None:
    (folder / "alias").symlink_to(folder / "open")
    confinement = Confinement((folder / "alias",))
    for stated in (folder / "alias" / "a.csv", folder / "open" / "a.csv"):
        assert confinement.problem(str(stated)) is None
        assert read(confinement, stated) == "open"


@pytest.mark.parametrize("name", ["link.csv", "out/secret"])
def test_link_created_after_the_check_is_not_followed(folder: Path, name: str) -> None:
    confinement = Confinement((folder / "open",))
    stated = folder / "open" / name
    assert confinement.problem(str(stated)) is None, "there is nothing yet"
    opener = confinement.opener(str(stated))
    (folder / "open" / "link.csv").symlink_to(folder / "secret")
    (folder / "open" / "out").symlink_to(folder)
    assert "is not below a folder that is open to you" in str(confinement.problem(str(stated)))
    with pytest.raises(SourceError, match=r"leads out of the folders that the profile opens under roots"):
        opener(stated)


def test_link_that_replaces_a_folder_between_check_and_open_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of the path alone would lose this race."""
    (folder / "open" / "inner" / "secret").write_text("open")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "secret").write_text("secret")
    realpath = os.path.realpath

    def resolve_then_swap(path: Path) -> str:
        resolved = realpath(path)
        if str(path).endswith("inner/secret"):
            (folder / "open" / "inner").rename(folder / "open" / "before")
            (folder / "open" / "inner").symlink_to(folder / "elsewhere")
        return resolved

    confinement = Confinement((folder / "open",))
    stated = folder / "open" / "inner" / "secret"
    opener = confinement.opener(str(stated))
    monkeypatch.setattr("tidegate.services.roots.os.path.realpath", resolve_then_swap)
    with pytest.raises(SourceError, match="has become a symbolic link, and is not read"):
        opener(stated)


def test_data_folder_below_a_root_is_not_readable(folder: Path) -> None:
    private = folder / "open" / "inner"
    (private / "mask.key").write_text("secret")
    (private / "samples").mkdir()
    (private / "samples" / "a.csv").write_text("open")
    confinement = Confinement((folder / "open",), (private,))
    assert confinement.problem(str(private / "mask.key")) is not None
    with pytest.raises(SourceError):
        read(confinement, folder / "open" / "*", private / "mask.key")
    inside = Confinement((private / "samples",), (private,))
    assert read(inside, private / "samples" / "a.csv") == "open", "a root inside of it was opened on purpose"


def test_pipe_and_folder_are_not_read(folder: Path) -> None:
    os.mkfifo(folder / "open" / "pipe")
    confinement = Confinement((folder / "open",))
    for name in ("pipe", "inner"):
        with pytest.raises(SourceError, match="is not a regular file"):
            read(confinement, folder / "open" / name)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("file:///srv/a.csv", "expected the path of a file, not the URL 'file:///srv/a.csv'"),
        ("data/a.csv", "expected an absolute path, not 'data/a.csv'"),
        ("/srv/\0a", "expected an absolute path"),
        ("/srv/../etc/passwd", "expected a path without '..', not '/srv/../etc/passwd'"),
        ("/etc/passwd", "'/etc/passwd' is not below a folder that is open to you; the operator opens some under roots"),
    ],
)
def test_path_outside_the_roots_is_refused(stated: str, message: str) -> None:
    assert message in str(Confinement((Path("/srv"),)).problem(stated))
    assert Confinement(()).problem(stated) is not None
    with pytest.raises(SourceError):
        Confinement((Path("/srv"),)).opener(stated)(Path("/etc/hostname"))
