"""Corpora read from files."""

from __future__ import annotations

import bz2
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.semantics.spaces import EVERYTHING
from tidegate import SpaceError
from tidegate.semantics.builder import Document, build
from tidegate.semantics.corpora import open_corpus, plain_text

DUMP = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">
<siteinfo><sitename>Wikipedia</sitename></siteinfo>
<page><title>Tea</title><ns>0</ns><id>1</id><revision><id>7</id>
  <text xml:space="preserve">'''Tea''' &amp; &lt;b&gt;milk&lt;/b&gt; in a [[cup|small cup]]</text></revision></page>
<page><title>Chai</title><ns>0</ns><redirect title="Tea" /><revision><text>#REDIRECT [[Tea]]</text></revision></page>
<page><title>Talk:Tea</title><ns>1</ns><id>3</id><revision><text>Is it hot?</text></revision></page>
<page><title>Empty</title><ns>0</ns><id>4</id><revision><text /></revision></page>
</mediawiki>
"""
ARTICLES = [Document("Tea", "Tea & milk in a small cup"), Document("Empty", "")]


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2"])
def test_wikipedia_dump_yields_its_articles(tmp_path: Path, name: str) -> None:
    data = DUMP.encode()
    (tmp_path / name).write_bytes(bz2.compress(data) if name.endswith("bz2") else data)
    corpus = open_corpus(tmp_path / name)
    assert (corpus.name, corpus.done) == (name, 0)
    assert list(corpus.read()) == ARTICLES
    assert corpus.done == 1


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2"])
def test_truncated_dump_is_refused(tmp_path: Path, name: str) -> None:
    data = DUMP.encode()
    (tmp_path / name).write_bytes(bz2.compress(data)[:-20] if name.endswith("bz2") else data[:-30])
    with pytest.raises(SpaceError, match=rf"{name} can't be read to its end: "):
        list(open_corpus(tmp_path / name).read())


def test_dump_in_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text(f'<?xml version="1.0" encoding="klingon"?>{DUMP}', "utf-8")
    with pytest.raises(SpaceError, match=r"dump.xml can't be read to its end: unknown encoding: klingon"):
        list(open_corpus(tmp_path / "dump.xml").read())


@pytest.mark.parametrize(("name", "data"), [("dump.xml", b""), ("dump.xml.bz2", bz2.compress(b""))])
def test_empty_dump_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SpaceError, match=rf"{name} can't be read to its end: "):
        list(open_corpus(tmp_path / name).read())


@pytest.mark.parametrize("data", [b"", DUMP.encode()])
def test_file_that_is_bzip2_only_by_name_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "dump.xml.bz2").write_bytes(data)
    with pytest.raises(SpaceError, match=r"dump.xml.bz2 is not bzip2: expected a dump as downloaded, or unpacked"):
        open_corpus(tmp_path / "dump.xml.bz2")


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("{{Infobox|a={{b|c}}|d}}Words", "Words"),
        ("{| class=x\n|-\n| cell {{t}}\n|}After", "After"),
        ("[[File:a.jpg|thumb|A [[cat]] sits]]Cats", "Cats"),
        ("[[Category:Animals]]Cats", "Cats"),
        ("A [https://a.example/x named link] and https://b.example/y", "A named link and"),
        ("== Heading ==\n* one\n# two", "Heading one two"),
        ("a<!-- no\n -->b<ref name=x/>c<ref>d</ref><br/>e", "a b c e"),
        ("a<ref>b</ref> c<references responsive>d<ref>e</ref>", "a c d"),
        ("{{never closed", "{{never closed"),
    ],
)
def test_markup_is_removed(wikitext: str, expected: str) -> None:
    assert plain_text(wikitext) == expected


def test_folder_yields_texts_in_path_order(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tea.txt").write_text("Hot")
    (tmp_path / "a.txt").write_text("Café")
    (tmp_path / "c.md").write_text("no")
    corpus = open_corpus(tmp_path)
    assert list(corpus.read()) == [Document("a", "Café"), Document("b/tea", "Hot")]
    assert (corpus.name, corpus.done) == (tmp_path.name, 1)


def test_parquet_yields_titles_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "title": ["a", None, "c"], "text": ["x", "y", "z"]}), path)
    corpus = open_corpus(path)
    assert list(corpus.read()) == [Document("a", "x"), Document("c", "z")]
    assert (corpus.name, corpus.done) == ("a.parquet", 1)


def test_text_in_parquet_may_be_bytes(tmp_path: Path) -> None:
    table = pa.table({"title": pa.array([1], pa.int8()), "text": pa.array(["Café".encode()], pa.binary())})
    pq.write_table(table, tmp_path / "a.parquet")
    assert list(open_corpus(tmp_path / "a.parquet").read()) == [Document("1", "Café")]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"title": ["a"], "text": [["b"]]}, r"expected text in the column 'text', not list<"),
        ({"title": ["a"], "text": [5]}, r"expected text in the column 'text', not int64"),
        ({"title": [{"en": "a"}], "text": ["b"]}, r"expected text in the column 'title', not struct<"),
    ],
)
def test_parquet_without_text_columns_is_refused(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(SpaceError, match=rf"a.parquet: {said}"):
        open_corpus(tmp_path / "a.parquet")


def test_damaged_parquet_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"title": ["a"] * 50, "text": [f"{n} words" * n for n in range(50)]}), path)
    data = bytearray(path.read_bytes())
    data[60:120] = b"\xff" * 60
    path.write_bytes(data)
    with pytest.raises(SpaceError, match=r"a.parquet can't be read to its end: "):
        build(open_corpus(path), tmp_path / "space", parameters=EVERYTHING)


def test_parquet_folder_is_read_in_file_name_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        pq.write_table(pa.table({"title": [name, None], "text": ["x", "y"]}), tmp_path / f"{name}.parquet")
    corpus = open_corpus(tmp_path)
    assert list(corpus.read()) == [Document("a", "x"), Document("b", "x")]
    assert (corpus.name, corpus.done) == (tmp_path.name, 1)


@pytest.mark.parametrize("kind", ["texts", "parquet", "dump"])
def test_corpus_read_skips_documents_already_read(tmp_path: Path, kind: str) -> None:
    if kind == "texts":
        for name in "abc":
            (tmp_path / f"{name}.txt").write_text(name)
        path = tmp_path
    elif kind == "parquet":
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"title": ["a", None, "b", "c"], "text": ["x", "y", "z", "w"]}), path)
    else:
        path = tmp_path / "dump.xml"
        path.write_text(DUMP)
    every = list(open_corpus(path).read())
    for after in range(len(every) + 2):
        assert list(open_corpus(path).read(after)) == every[after:]


def test_fingerprint_changes_with_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    first = open_corpus(tmp_path).fingerprint
    assert open_corpus(tmp_path).fingerprint == first
    (tmp_path / "b.txt").write_text("b")
    assert open_corpus(tmp_path).fingerprint != first


def test_path_that_is_no_corpus_is_refused_by_name(tmp_path: Path) -> None:
    expected = r"expected a folder of .txt or .parquet files, a .xml or .xml.bz2 dump, or .parquet"
    with pytest.raises(SpaceError, match=rf"nothing does not exist: {expected}"):
        open_corpus(tmp_path / "nothing")
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    with pytest.raises(SpaceError, match=rf"a.pdf: {expected}"):
        open_corpus(tmp_path / "a.pdf")
    with pytest.raises(SpaceError, match=r"has no .txt file in it"):
        open_corpus(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(SpaceError, match=r"a.txt can't be read as UTF-8: .* position 3"):
        list(open_corpus(tmp_path).read())
    (tmp_path / "a.parquet").write_bytes(b"PAR")
    with pytest.raises(SpaceError, match=r"a.parquet can't be read as Parquet: "):
        open_corpus(tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1], "title": ["a"]}), tmp_path / "b.parquet")
    with pytest.raises(SpaceError, match=r"b.parquet has no column 'text'; it has id, title"):
        open_corpus(tmp_path / "b.parquet")
