"""Tables of definitions that came over the network, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from pyarrow import parquet

from tidegate.errors import ServiceError
from tidegate.pipelines import static_tables
from tidegate.services.operators import Table
from tidegate.services.roots import Confinement


def read(path: Path, kind: Literal["csv", "parquet"] = "csv") -> pa.Table:
    table = Table(str(path), kind)
    return static_tables.read(table, Confinement((path.parent,)).opener(str(path)))


def test_csv_is_text_with_quotes_and_line_ends_in_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('vid , road,n\nB1,"say ""hi""\nthere",007\nB2,,1\nshort\n')
    assert read(tmp_path / "a.csv").to_pylist() == [
        {"vid": "B1", "road": 'say "hi"\nthere', "n": "007"},
        {"vid": "B2", "road": None, "n": "1"},
    ]


def test_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "t.parquet"
    folder.mkdir()
    for n in range(2):
        parquet.write_table(pa.table({"vid": [f"B{n}"], "n": [n]}), folder / f"{n}.parquet")
    assert sorted(read(folder, kind="parquet").to_pydict()["vid"]) == ["B0", "B1"]


@pytest.mark.parametrize(
    ("name", "format_", "message"),
    [
        ("none.csv", "csv", "can't read the table '.*none.csv': .*No such file"),
        ("link.csv", "csv", "can't read the table '.*link.csv': .*leads out of the folders"),
        ("bad.parquet", "parquet", "can't read the table '.*bad.parquet': "),
    ],
)
def test_table_that_can_not_be_read_is_a_service_error(
    tmp_path: Path, name: str, format_: Literal["csv", "parquet"], message: str
) -> None:
    inside = tmp_path / "open"
    inside.mkdir()
    (inside / "bad.parquet").write_text("no Parquet")
    (tmp_path / "secret.csv").write_text("vid\nB1\n")
    (inside / "link.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(ServiceError, match=message):
        read(inside / name, format_)


def test_table_larger_than_memory_allows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_tables, "MAX_TABLE_BYTES", 64)
    (tmp_path / "a.csv").write_text("vid\n" + "B\n" * 100)
    with pytest.raises(ServiceError, match=r"expected a table of at most 64 bytes: '.*a.csv' has more"):
        read(tmp_path / "a.csv")
    parquet.write_table(pa.table({"vid": ["same"] * 10_000}), tmp_path / "b.parquet", use_dictionary=False)
    monkeypatch.setattr(static_tables, "MAX_TABLE_BYTES", (tmp_path / "b.parquet").stat().st_size)
    with pytest.raises(ServiceError, match=r"at most \d+ bytes: '.*b.parquet' expands to more"):
        read(tmp_path / "b.parquet", kind="parquet")
