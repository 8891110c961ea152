"""The glossary defines each term once and names code that exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in GLOSSARY.splitlines()
    if line.startswith("| ") and not line.startswith("| term |")
]


def test_every_row_has_term_meaning_field_name_and_code() -> None:
    assert len(ROWS) > 80
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


def test_each_term_is_defined_once() -> None:
    counts = Counter(row[0] for row in ROWS)
    assert [term for term, count in counts.items() if count > 1] == []


def test_code_of_each_term_exists() -> None:
    paths = [path for row in ROWS for path in re.findall(r"`([^`]+)`", row[3])]
    assert [
        path for path in paths if not (ROOT / "src" / "tidegate" / path).exists() and not (ROOT / path).exists()
    ] == []
