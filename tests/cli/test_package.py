"""The installed package: light imports, public names, type information."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tidegate
from tidegate.cli.input import durations


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_no_heavy_package() -> None:
    heavy = "import sys, tidegate; print(sorted(m for m in sys.modules if m.split('.')[0] in {!r}))"
    assert run(heavy.format({"numpy", "pyarrow", "pyspark", "pandas", "typer", "rapidfuzz", "re2", "yaml"})) == "[]"


def test_client_needs_only_httpx() -> None:
    heavy = "import sys; from tidegate import Client; print(sorted(m for m in sys.modules if m.split('.')[0] in {!r}))"
    assert run(heavy.format({"numpy", "pyarrow", "orjson", "re2", "yaml", "fastapi", "sqlalchemy"})) == "[]"
    code = """
import sys
sys.modules["httpx"] = None
import tidegate
try:
    tidegate.Client
except tidegate.MissingDependency as error:
    print(error)
"""
    assert run(code) == "httpx is not installed: pip install 'tidegate[client]'"


def test_filters_work_without_arrow_and_spark() -> None:
    code = """
import sys
for name in ("numpy", "pyarrow", "pyspark", "pandas"):
    sys.modules[name] = None
import tidegate
from tidegate import Filter, Schema
schema = Schema({"speed": "float64", "vid": "string"})
compiled = Filter("speed > 60 AND vid LIKE 'B%' AND vid STRLIKE 'B17' AND speed IS S(0, 50)", schema)
print(compiled.matches({"speed": 61.5, "vid": "B17"}))
for call in (lambda: compiled.mask(None), schema.to_arrow, lambda: tidegate.Matcher):
    try:
        call()
    except Exception as error:
        print(error)
"""
    missing = "pyarrow is not installed: pip install 'tidegate[arrow]'"
    no_matcher = "numpy is not installed: pip install 'tidegate[matching]'"
    assert run(code).splitlines() == ["True", missing, missing, no_matcher]


def test_every_public_name_can_be_imported() -> None:
    for name in tidegate.__all__:
        assert getattr(tidegate, name) is not None
    assert set(tidegate.__all__) <= set(dir(tidegate))
    with pytest.raises(AttributeError, match="module 'tidegate' has no attribute 'Nothing'"):
        _ = tidegate.Nothing


def test_package_has_a_py_typed_marker() -> None:
    assert Path(tidegate.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("2m", 120), ("1h", 3600), ("1.5", 1.5)])
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert durations.seconds(text) == seconds


def test_invalid_duration_is_refused() -> None:
    from typer import BadParameter

    with pytest.raises(BadParameter, match="expected a length of time such as 30s or 2m, not 'soon'"):
        durations.seconds("soon")
