"""Corpora: documents out of files, one after the other, however large they are."""

from __future__ import annotations

import re
from bz2 import BZ2File
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import IO, Protocol
from xml.etree import ElementTree

from tidegate.errors import MissingDependency, SpaceError
from tidegate.semantics.builder import Document


class Corpus(Protocol):
    """Documents to read once, and how far that has come."""

    @property
    def name(self) -> str:
        """What a space will say that it was made of."""

    @property
    def done(self) -> float:
        """The part that has been read, from 0 to 1."""

    def __iter__(self) -> Iterator[Document]: ...


def open_corpus(path: Path | str) -> Corpus:
    """The corpus at a path: a folder of texts, a Wikipedia dump, or Parquet with `title` and `text`."""
    found = Path(path)
    if found.is_dir():
        return Folder(found)
    if not found.exists():
        raise SpaceError(f"{found} is not there: expected a folder of .txt files, a .xml or .xml.bz2 dump, or .parquet")
    if found.suffix == ".parquet":
        return Parquet(found)
    if found.name.endswith((".xml", ".xml.bz2")):
        return WikipediaDump(found)
    raise SpaceError(f"{found.name}: expected a folder of .txt files, a .xml or .xml.bz2 dump, or .parquet")


class Folder:
    """Every `.txt` in a folder and below it, in the order of their paths; a path without its ending is a title."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = sorted(folder.rglob("*.txt"))
        if not self._files:
            raise SpaceError(f"{folder} has no .txt file in it")
        self._read = 0

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self._folder.resolve().name

    @property
    def done(self) -> float:
        """By files."""
        return self._read / len(self._files)

    def __iter__(self) -> Iterator[Document]:
        for path in self._files:
            try:
                text = path.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as exc:
                raise SpaceError(f"{path} can't be read as UTF-8: {exc}") from exc
            self._read += 1
            yield Document(path.relative_to(self._folder).with_suffix("").as_posix(), text)


class Parquet:
    """A Parquet file with the columns `title` and `text`; rows that lack one are left out."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ModuleNotFoundError as exc:
            raise MissingDependency("pyarrow", "arrow") from exc
        self.name = path.name
        try:
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as exc:
            raise SpaceError(f"{path} can't be read as Parquet: {exc}") from exc
        present = self._file.schema_arrow.names
        for column in ("title", "text"):
            if column not in present:
                raise SpaceError(f"{path} has no column {column!r}; it has {', '.join(present)}")
        self._rows = max(1, int(self._file.metadata.num_rows))
        self._read = 0

    @property
    def done(self) -> float:
        """By rows."""
        return self._read / self._rows

    def __iter__(self) -> Iterator[Document]:
        for batch in self._file.iter_batches(batch_size=200, columns=["title", "text"]):
            for title, text in zip(*(batch.column(name).to_pylist() for name in ("title", "text")), strict=True):
                self._read += 1
                if title is not None and text is not None:
                    yield Document(str(title), str(text))


class WikipediaDump:
    """The articles of a `pages-articles` dump, plain or bzip2; redirects and pages about pages are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = max(1, path.stat().st_size)
        self._raw: IO[bytes] | None = None

    @property
    def name(self) -> str:
        """The file's name, which has the language and the date."""
        return self._path.name

    @property
    def done(self) -> float:
        """By bytes of the file, compressed or not."""
        return 0.0 if self._raw is None else 1.0 if self._raw.closed else min(1.0, self._raw.tell() / self._size)

    def __iter__(self) -> Iterator[Document]:
        with self._path.open("rb") as self._raw:
            stream = BZ2File(self._raw) if self._path.suffix == ".bz2" else self._raw
            try:
                yield from _articles(stream)
            except (ElementTree.ParseError, OSError, EOFError) as exc:
                raise SpaceError(f"{self._path} can't be read to its end: {exc}") from exc


def _articles(stream: IO[bytes]) -> Iterator[Document]:
    """Pages as they come; what was read is let go of."""
    events = ElementTree.iterparse(stream, events=("start", "end"))
    _, root = next(events)
    for event, element in events:
        if event != "end" or _local(element.tag) != "page":
            continue
        parts = {_local(each.tag): each.text or "" for each in element.iter()}
        if parts.get("ns") == "0" and "redirect" not in parts:
            yield Document(parts.get("title", ""), plain_text(parts.get("text", "")))
        root.clear()


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


_INNERMOST = re.compile(r"\{\{[^{}]*\}\}|\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
_GONE = re.compile(
    r"<!--.*?-->|<ref\b[^>]*/>|<ref\b.*?</ref>|<(math|gallery|code|nowiki|syntaxhighlight)\b.*?</\1>|<[^>]*>"
    r"|\[\[(?:File|Image|Category):(?:[^\[\]]|\[\[[^\[\]]*\]\])*\]\]",
    re.DOTALL | re.IGNORECASE,
)
_LINK = re.compile(r"\[\[(?:[^|\[\]]*\|)?([^\[\]]*)\]\]")
_OUTSIDE_LINK = re.compile(r"\[\w+://\S*\s?([^\]]*)\]|\w+://\S+")
_MARKS = re.compile(r"'{2,}|={2,}|^[*#:;]+", re.MULTILINE)
_NESTING = 12
"""How deep templates are taken out of each other; what is deeper stays as words."""


def plain_text(wikitext: str) -> str:
    """What a reader sees of wikitext, about: no templates, tables, references, addresses or marks.

    >>> plain_text("'''Tea''' is a [[drink|hot drink]]{{cite|x}}.<ref>A book</ref>")
    'Tea is a hot drink.'
    """
    text = _GONE.sub(" ", unescape(wikitext)) if "<" in wikitext or "&" in wikitext or "[[" in wikitext else wikitext
    for _ in range(_NESTING):
        text, changed = _INNERMOST.subn("", text)
        if not changed:
            break
    text = _OUTSIDE_LINK.sub(r"\1", _LINK.sub(r"\1", text))
    return " ".join(_MARKS.sub("", text).split())
