"""Corpora: documents out of files, one after the other, however large they are."""

from __future__ import annotations

import re
from bz2 import BZ2File
from collections.abc import Iterator
from hashlib import sha256
from html import unescape
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, runtime_checkable
from xml.etree import ElementTree

from tidegate.errors import MissingDependency, SpaceError

_EXPECTED = "expected a folder of .txt or .parquet files, a .xml or .xml.bz2 dump, or .parquet"


class Document(NamedTuple):
    """A text about one thing, which its title names."""

    title: str
    text: str


@runtime_checkable
class Corpus(Protocol):
    """Documents to read once, and how far that has come."""

    @property
    def name(self) -> str:
        """What a space will say that it was made of."""

    @property
    def files(self) -> list[Path]:
        """All that is read, in order."""

    @property
    def fingerprint(self) -> str:
        """Changes when the corpus does: the names of its files, their sizes, and when they were last written."""

    @property
    def done(self) -> float:
        """The part that has been read, from 0 to 1."""

    def read(self, after: int = 0) -> Iterator[Document]:
        """The documents, without the first so many."""


def open_corpus(path: Path | str) -> Corpus:
    """The corpus at a path: a folder of texts or of Parquet, a Wikipedia dump, or Parquet with `title` and `text`."""
    found = Path(path)
    if found.is_dir():
        tables = sorted(found.glob("*.parquet"))
        return Parquet(found, tables) if tables else Folder(found)
    if not found.exists():
        raise SpaceError(f"{found} is not there: {_EXPECTED}")
    if found.suffix == ".parquet":
        return Parquet(found, [found])
    if found.name.endswith((".xml", ".xml.bz2")):
        return WikipediaDump(found)
    raise SpaceError(f"{found.name}: {_EXPECTED}")


class _Files:
    """What all corpora are: files under a name."""

    def __init__(self, path: Path, files: list[Path]) -> None:
        self.path = path
        self.files = files
        self.name = path.resolve().name

    @property
    def fingerprint(self) -> str:
        """By what the file system says of the files, which takes no reading."""
        seen = sha256()
        for each in self.files:
            about = each.stat()
            seen.update(f"{each.resolve()}\0{about.st_size}\0{about.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        return seen.hexdigest()


class Folder(_Files):
    """Every `.txt` in a folder and below it, in the order of their paths; a path without its ending is a title."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sorted(folder.rglob("*.txt")))
        if not self.files:
            raise SpaceError(f"{folder} has no .txt file in it")
        self._read = 0

    @property
    def done(self) -> float:
        """By files."""
        return self._read / len(self.files)

    def read(self, after: int = 0) -> Iterator[Document]:
        """One document a file."""
        for number, path in enumerate(self.files[after:], after + 1):
            self._read = number
            yield text_file(path, self.path)


def text_file(path: Path, folder: Path) -> Document:
    """A text file as a document, which its path in the folder names."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise SpaceError(f"{path} can't be read as UTF-8: {exc}") from exc
    return Document(path.relative_to(folder).with_suffix("").as_posix(), text)


class Parquet(_Files):
    """Parquet files with the columns `title` and `text`; rows that lack one are left out."""

    def __init__(self, path: Path, files: list[Path]) -> None:
        super().__init__(path, files)
        self._rows: int = max(1, sum(self._open(each).metadata.num_rows for each in files))
        self._read = 0

    def _open(self, path: Path) -> Any:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ModuleNotFoundError as exc:
            raise MissingDependency("pyarrow", "arrow") from exc
        try:
            found = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as exc:
            raise SpaceError(f"{path} can't be read as Parquet: {exc}") from exc
        present = found.schema_arrow.names
        for column in ("title", "text"):
            if column not in present:
                raise SpaceError(f"{path} has no column {column!r}; it has {', '.join(present)}")
            kind = found.schema_arrow.field(column).type
            if pa.types.is_nested(kind) or (column == "text" and not _is_text(kind)):
                raise SpaceError(f"{path}: expected text in the column {column!r}, not {kind}")
        return found

    @property
    def done(self) -> float:
        """By rows."""
        return self._read / self._rows

    def read(self, after: int = 0) -> Iterator[Document]:
        """One document a row."""
        return islice(self._documents(), after, None)

    def _documents(self) -> Iterator[Document]:
        for path in self.files:
            for batch in self._batches(path):
                for title, text in zip(*(batch.column(name).to_pylist() for name in ("title", "text")), strict=True):
                    self._read += 1
                    if title is not None and text is not None:
                        yield Document(_decoded(title), _decoded(text))

    def _batches(self, path: Path) -> Iterator[Any]:
        batches = self._open(path).iter_batches(batch_size=200, columns=["title", "text"])
        while True:
            try:
                batch = next(batches, None)
            except (OSError, ValueError, NotImplementedError) as exc:  # Arrow's own errors are these
                raise SpaceError(f"{path} can't be read to its end: {exc}") from exc
            if batch is None:
                return
            yield batch


def _is_text(kind: Any) -> bool:
    """Whether values of an Arrow type are text; older writers of Parquet have it as bytes."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    known = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    return kind in known


def _decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class WikipediaDump(_Files):
    """The articles of a `pages-articles` dump, plain or bzip2; redirects and pages about pages are left out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, [path])
        self._size = max(1, path.stat().st_size)
        self._raw: IO[bytes] | None = None
        if path.suffix == ".bz2":
            _require_bzip2(path)

    @property
    def done(self) -> float:
        """By bytes of the file, compressed or not."""
        return 0.0 if self._raw is None else 1.0 if self._raw.closed else min(1.0, self._raw.tell() / self._size)

    def read(self, after: int = 0) -> Iterator[Document]:
        """One document an article."""
        with self.path.open("rb") as self._raw:
            stream = BZ2File(self._raw) if self.path.suffix == ".bz2" else self._raw
            try:
                for title, wikitext in islice(_articles(stream), after, None):
                    yield Document(title, plain_text(wikitext))
            except (ElementTree.ParseError, OSError, EOFError, LookupError, ValueError) as exc:
                raise SpaceError(f"{self.path} can't be read to its end: {exc}") from exc


def _require_bzip2(path: Path) -> None:
    """Refuse what has only the name of bzip2: Spark would find nothing in it, and say nothing."""
    try:
        with path.open("rb") as file:
            begin = file.read(3)
    except OSError as exc:
        raise SpaceError(f"{path} can't be read: {exc.strerror}") from exc
    if begin != b"BZh":
        raise SpaceError(f"{path} is no bzip2: expected a dump as it was fetched, or unpacked as .xml")


def _articles(stream: IO[bytes]) -> Iterator[tuple[str, str]]:
    """Titles and wikitexts as they come; what was read is let go of."""
    events = ElementTree.iterparse(stream, events=("start", "end"))
    _, root = next(events)
    for event, element in events:
        if event == "end" and _local(element.tag) == "page":
            found = article(element)
            if found is not None:
                yield found
            root.clear()


def article(page: ElementTree.Element) -> tuple[str, str] | None:
    """Title and wikitext of a `<page>`; None: it is a redirect, or about pages."""
    parts = {_local(each.tag): each.text or "" for each in page.iter()}
    if parts.get("ns") != "0" or "redirect" in parts:
        return None
    return parts.get("title", ""), parts.get("text", "")


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
