"""Examples of the documents run, and their links, paths and commands exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tidegate import FilterTypeError
from tidegate.cli.main import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_library_examples_of_the_readme_give_the_shown_results() -> None:
    names: dict[str, Any] = {}
    statement = ""
    checked = 0
    for line in blocks("python")[0].splitlines():
        statement += line + "\n"
        try:
            code = compile(statement, "README", "exec")
        except SyntaxError:
            continue
        expected = re.search(r"# (True|False|[\d.]+)", line)
        if expected:
            assert eval(statement, names) == eval(expected[1])
            checked += 1
        else:
            exec(code, names)
        statement = ""
    assert checked == 3
    exec(blocks("python")[1], names)
    last = blocks("python")[1].rstrip().rpartition("\n")[2]
    assert repr(eval(last, names)) == last.rpartition("# ")[2]
    with pytest.raises(FilterTypeError) as caught:
        names["Filter"]("sped > 60 AND kind = 'TRAM'", names["schema"])
    assert f"FilterTypeError: {caught.value}" in README


def test_every_filter_of_the_readme_table_parses() -> None:
    from tidegate import Filter, Schema

    schema = Schema({"speed": "float64"}, terms={"speed": {"slow": "TRAPEZOID(0, 0, 20, 35)"}})
    table = README.split("## What it can say")[1].split("Nulls, NaN")[0]
    texts = [text for text in re.findall(r"`([^`]+)`", table) if "..." not in text]
    assert len(texts) > 9
    for text in texts:
        Filter(text, schema if text == "speed IS slow" else None)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_targets_of_links_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def anchors(path: Path) -> set[str]:
    """The anchors that a renderer gives to the headings of a document."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_anchors_of_links_are_headings(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", path.read_text()):
        if "://" not in target:
            document = (path.parent / target) if target else path
            assert anchor in anchors(document), f"{path.name} links to {target}#{anchor}"


def test_title_of_a_decision_record_has_the_number_of_its_file() -> None:
    for path in sorted((ROOT / "docs" / "adr").glob("*.md")):
        title = path.read_text().splitlines()[0]
        assert title.startswith(f"# {int(path.name[:4])}. "), path.name


def test_newest_version_of_the_changelog_is_that_of_the_package() -> None:
    newest = re.search(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == tidegate.__version__


def test_every_path_of_contributing_exists() -> None:
    """The worked examples name new files, which do not exist."""
    added = {"throttle.py", "amqp.py", "test_amqp.py", "pulsar.py"}
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:benchmarks|conformance|docs|src|tests)/[\w/.-]+)`", text)
    assert len(paths) > 20
    missing = {path for path in paths if not (ROOT / path).exists() and Path(path).name not in added}
    assert not missing


def test_every_module_of_the_code_map_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## Code map")[1].split("## Invariants")[0]
    for where, begin in re.findall(r"^\| (`.*?`) \|.*\|(.*)\|$", text, re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([^`]+)`", where + begin):
            folder = name.rpartition("/")[0] or folder
            base = name.rpartition("/")[2]
            places = [ROOT / "src" / "tidegate" / folder / base, ROOT / name]
            assert any(place.exists() for place in places), name


def test_every_make_target_of_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / ".pre-commit-config.yaml"):
        assert set(re.findall(r"`make ([a-z-]+)", path.read_text())) <= targets, path.name
    assert set(re.findall(r"^make ([a-z]+)", README, re.MULTILINE)) <= targets


def test_every_command_of_the_documents_exists() -> None:
    known = {each.name for each in app.registered_commands} | {each.name for each in app.registered_groups}
    for path in DOCUMENTS:
        assert set(re.findall(r"`tidegate ([a-z]+)", path.read_text())) <= known, path.name


def test_conformance_file_has_one_object_per_line() -> None:
    lines = (ROOT / "conformance" / "filters.jsonl").read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert all(isinstance(json.loads(line), dict) for line in lines)
