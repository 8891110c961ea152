"""Corpora: documents read from files one after another, for files of any size."""

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
    """A text and its title."""

    title: str
    text: str


@runtime_checkable
class Corpus(Protocol):
    """Documents that are read once, with progress."""

    @property
    def name(self) -> str:
        """The name that the space stores for its corpus."""

    @property
    def files(self) -> list[Path]:
        """All files, in the order in which they are read."""

    @property
    def fingerprint(self) -> str:
        """A hash that changes with the names, sizes or modification times of the files."""

    @property
    def done(self) -> float:
        """Share that has been read, from 0 to 1."""

    def read(self, after: int = 0) -> Iterator[Document]:
        """Yield the documents after the first `after`."""


def open_corpus(path: Path | str) -> Corpus:
    """Return the corpus at a path: a folder of texts or Parquet, a Wikipedia dump, or Parquet with `title` and `text`.

    Raises `SpaceError` for anything else.
    """
    source = Path(path)
    if source.is_dir():
        tables = sorted(source.glob("*.parquet"))
        return Parquet(source, tables) if tables else Folder(source)
    if not source.exists():
        raise SpaceError(f"{source} does not exist: {_EXPECTED}")
    if source.suffix == ".parquet":
        return Parquet(source, [source])
    if source.name.endswith((".xml", ".xml.bz2")):
        return WikipediaDump(source)
    raise SpaceError(f"{source.name}: {_EXPECTED}")


class _Files:
    """What all corpora share: files and a name."""

    def __init__(self, path: Path, files: list[Path]) -> None:
        self.path = path
        self.files = files
        self.name = path.resolve().name

    @property
    def fingerprint(self) -> str:
        """A hash of the files' metadata; reads no content."""
        digest = sha256()
        for file in self.files:
            about = file.stat()
            digest.update(
                f"{file.resolve()}\0{about.st_size}\0{about.st_mtime_ns}\n".encode("utf-8", "surrogateescape")
            )
        return digest.hexdigest()


class Folder(_Files):
    """All `.txt` files in a folder and its subfolders, in the order of their paths; the title is the path without
    suffix.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sorted(folder.rglob("*.txt")))
        if not self.files:
            raise SpaceError(f"{folder} has no .txt file in it")
        self._read = 0

    @property
    def done(self) -> float:
        """Share of the files."""
        return self._read / len(self.files)

    def read(self, after: int = 0) -> Iterator[Document]:
        """Yield one document per file. Raises `SpaceError` for a file that is not UTF-8."""
        for number, path in enumerate(self.files[after:], after + 1):
            self._read = number
            yield text_file(path, self.path)


def text_file(path: Path, folder: Path) -> Document:
    """Return a text file as a document; its title is its path in the folder. Raises `SpaceError`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise SpaceError(f"{path} can't be read as UTF-8: {exc}") from exc
    return Document(path.relative_to(folder).with_suffix("").as_posix(), text)


class Parquet(_Files):
    """Parquet files with the columns `title` and `text`; rows that lack one are skipped."""

    def __init__(self, path: Path, files: list[Path]) -> None:
        super().__init__(path, files)
        self._rows: int = max(1, sum(self._open(file).metadata.num_rows for file in files))
        self._read = 0

    def _open(self, path: Path) -> Any:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ModuleNotFoundError as exc:
            raise MissingDependency("pyarrow", "arrow") from exc
        try:
            parquet_file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as exc:
            raise SpaceError(f"{path} can't be read as Parquet: {exc}") from exc
        present = parquet_file.schema_arrow.names
        for column in ("title", "text"):
            if column not in present:
                raise SpaceError(f"{path} has no column {column!r}; it has {', '.join(present)}")
            kind = parquet_file.schema_arrow.field(column).type
            if pa.types.is_nested(kind) or (column == "text" and not _is_text(kind)):
                raise SpaceError(f"{path}: expected text in the column {column!r}, not {kind}")
        return parquet_file

    @property
    def done(self) -> float:
        """Share of the rows."""
        return self._read / self._rows

    def read(self, after: int = 0) -> Iterator[Document]:
        """Yield one document per row. Raises `SpaceError` if a file can't be read to its end."""
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
            except (OSError, ValueError, NotImplementedError) as exc:  # the base classes of Arrow's errors
                raise SpaceError(f"{path} can't be read to its end: {exc}") from exc
            if batch is None:
                return
            yield batch


def _is_text(kind: Any) -> bool:
    """Return True if values of an Arrow type are text; older Parquet writers store text as bytes."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    known = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    return kind in known


def _decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class WikipediaDump(_Files):
    """The articles of a `pages-articles` dump, plain or bzip2, without redirects and pages of other namespaces."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, [path])
        self._size = max(1, path.stat().st_size)
        self._raw: IO[bytes] | None = None
        if path.suffix == ".bz2":
            _require_bzip2(path)

    @property
    def done(self) -> float:
        """Share of the bytes of the file, compressed or not."""
        return 0.0 if self._raw is None else 1.0 if self._raw.closed else min(1.0, self._raw.tell() / self._size)

    def read(self, after: int = 0) -> Iterator[Document]:
        """Yield one document per article. Raises `SpaceError` if the dump can't be read to its end."""
        with self.path.open("rb") as self._raw:
            stream = BZ2File(self._raw) if self.path.suffix == ".bz2" else self._raw
            try:
                for title, wikitext in islice(_articles(stream), after, None):
                    yield Document(title, plain_text(wikitext))
            except (ElementTree.ParseError, OSError, EOFError, LookupError, ValueError) as exc:
                raise SpaceError(f"{self.path} can't be read to its end: {exc}") from exc


def _require_bzip2(path: Path) -> None:
    """Raise `SpaceError` if a file is no bzip2: Spark would silently read nothing from it."""
    try:
        with path.open("rb") as file:
            begin = file.read(3)
    except OSError as exc:
        raise SpaceError(f"{path} can't be read: {exc.strerror}") from exc
    if begin != b"BZh":
        raise SpaceError(f"{path} is not bzip2: expected a dump as downloaded, or unpacked as .xml")


def _articles(stream: IO[bytes]) -> Iterator[tuple[str, str]]:
    """Yield titles and wikitexts in the order of the dump; frees each page after reading it."""
    events = ElementTree.iterparse(stream, events=("start", "end"))
    _, root = next(events)
    for event, element in events:
        if event == "end" and _local(element.tag) == "page":
            title_and_text = article(element)
            if title_and_text is not None:
                yield title_and_text
            root.clear()


def article(page: ElementTree.Element) -> tuple[str, str] | None:
    """Return title and wikitext of a `<page>`; None for a redirect or a page of another namespace."""
    parts = {_local(element.tag): element.text or "" for element in page.iter()}
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
"""Maximum nesting of templates that are removed; deeper ones remain as words."""


def plain_text(wikitext: str) -> str:
    """Return roughly what a reader sees of wikitext: no templates, tables, references, URLs or markup.

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
