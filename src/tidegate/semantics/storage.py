"""The folder of a space: plain arrays, little-endian, each a file; and `space.json`, which says what they are.

    space.json                  format, version, analysis, corpus, parameters; size and CRC-32 of every file
    terms.utf8   terms.u64      the terms one after the other, in the order of their bytes; where each begins
    postings.u64                where the postings of each term begin
    documents.u32 counts.u32    the postings: in which document, in rising order, and how often
    titles.utf8  titles.u64     the titles of the documents; where each begins
    peaks.u32                   how often the commonest term of each document occurs
    lengths.f64                 each document's length as a vector of weights (`weights.py`)

Whoever opens it maps the files: no byte is read before it is needed, and processes
share what is in memory. `space.json` is written last and the folder gets its name after
that: half a space has no name.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import SpaceError
from tidegate.semantics.words import ANALYSIS

FORMAT, VERSION = "tidegate-space", 1
HEADER = "space.json"

FILES = {
    "terms.utf8": "<u1",
    "terms.u64": "<u8",
    "postings.u64": "<u8",
    "documents.u32": "<u4",
    "counts.u32": "<u4",
    "titles.utf8": "<u1",
    "titles.u64": "<u8",
    "peaks.u32": "<u4",
    "lengths.f64": "<f8",
}
"""The arrays and the type of their elements."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a space was made of."""

    name: str
    documents: int
    """That are in the space."""
    left_out: int
    """Documents that were too short to say anything."""
    words: int
    """That counted, over all documents."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What decided which documents and terms are in a space."""

    least_words: int = 100
    """A document with fewer words that count is left out: a stub relates words by chance."""
    least_documents: int = 3
    """A term in fewer documents is left out: a misspelling, a name. It would relate to its document, not its kind."""

    def keeps(self, words: int) -> bool:
        """Whether a document of so many words that count is in the space."""
        return words >= max(1, self.least_words)


@dataclass(frozen=True, slots=True)
class Header:
    """`space.json` as a value."""

    corpus: Corpus
    parameters: Parameters
    files: Mapping[str, tuple[int, int]]
    """Size in bytes and CRC-32 of each."""

    def to_text(self) -> str:
        """The header as it is written."""
        files = {name: {"bytes": size, "crc32": crc} for name, (size, crc) in self.files.items()}
        found = {"format": FORMAT, "version": VERSION, "analysis": ANALYSIS}
        found |= {"corpus": asdict(self.corpus), "parameters": asdict(self.parameters), "files": files}
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


class Sink:
    """One file of a space that is being written, from its beginning to its end."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._type = FILES[name]
        self._file: IO[bytes] = (folder / name).open("wb")
        self._size = self._crc = 0

    def write(self, values: Array | bytes) -> None:
        """Append values; numbers get the file's type."""
        data = values if isinstance(values, bytes) else values.astype(self._type, copy=False).tobytes()
        self._file.write(data)
        self._size += len(data)
        self._crc = zlib.crc32(data, self._crc)

    def close(self) -> tuple[int, int]:
        """Size and CRC-32 of all that was written."""
        self._file.close()
        return self._size, self._crc


def read_header(folder: Path) -> Header:
    """Read `space.json`; raise `SpaceError` for what is no space, or none that this version reads."""
    path = folder / HEADER
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        what = "is no folder" if not folder.is_dir() else f"has no {HEADER}"
        raise SpaceError(f"{folder} is no semantic space: it {what}; 'tidegate semantics build' makes one") from None
    except (OSError, ValueError) as exc:
        raise SpaceError(f"{path} can't be read: {exc}") from exc
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        shown = found.get("format") if isinstance(found, dict) else found
        raise SpaceError(f"{path}: expected the format {FORMAT!r}, not {shown!r}: this is no semantic space")
    version, analysis = found.get("version"), found.get("analysis")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        hint = "update Tidegate, or build it again" if newer else "build it again"
        raise SpaceError(f"{path}: the space has version {version!r}, and this Tidegate reads {VERSION}: {hint}")
    if analysis != ANALYSIS:
        raise SpaceError(
            f"{path}: the corpus was read as {analysis!r}, and this Tidegate reads text as {ANALYSIS!r}: build it again"
        )
    try:
        corpus, parameters, files = found["corpus"], found["parameters"], found["files"]
        return Header(
            Corpus(str(corpus["name"]), *(int(corpus[each]) for each in ("documents", "left_out", "words"))),
            Parameters(*(int(parameters[each]) for each in ("least_words", "least_documents"))),
            {name: (int(each["bytes"]), int(each["crc32"])) for name, each in files.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise SpaceError(f"{path} is damaged: {type(exc).__name__}: {exc}") from exc


def open_arrays(folder: Path, header: Header, verify: bool = False) -> dict[str, Array]:
    """Map every file, once it has the size that the header says; with `verify` the content too."""
    arrays: dict[str, Array] = {}
    for name, kind in FILES.items():
        path = folder / name
        if name not in header.files:
            raise SpaceError(f"{folder / HEADER} is damaged: it does not name {name}")
        expected, crc = header.files[name]
        try:
            size = path.stat().st_size
        except OSError as exc:
            raise SpaceError(f"{path} can't be read: {exc.strerror}; the space is not whole: build it again") from exc
        if size != expected or size == 0 or size % np.dtype(kind).itemsize:
            raise SpaceError(f"{path} is damaged: it has {size:,} bytes, not {expected:,}: build the space again")
        try:
            arrays[name] = np.memmap(path, dtype=kind, mode="r").view(np.ndarray)
        except OSError as exc:
            raise SpaceError(f"{path} can't be read: {exc.strerror}") from exc
        if verify and _checksum(arrays[name]) != crc:
            raise SpaceError(f"{path} is damaged: its bytes are not those that were written: build the space again")
    _require_fit(folder, header, arrays)
    return arrays


_CHUNK = 1 << 24


def _checksum(values: Array) -> int:
    data = values.view(np.uint8)
    crc = 0
    for begin in range(0, len(data), _CHUNK):
        crc = zlib.crc32(data[begin : begin + _CHUNK].data, crc)
    return crc


def _require_fit(folder: Path, header: Header, arrays: Mapping[str, Array]) -> None:
    """The arrays fit each other; what a wrong one would do is an index that reads past an end."""
    documents, terms = header.corpus.documents, len(arrays["terms.u64"]) - 1
    fits = {
        "terms.u64": _spans(arrays["terms.u64"], len(arrays["terms.utf8"])),
        "postings.u64": len(arrays["postings.u64"]) == terms + 1
        and _spans(arrays["postings.u64"], len(arrays["documents.u32"])),
        "counts.u32": len(arrays["counts.u32"]) == len(arrays["documents.u32"]),
        "titles.u64": len(arrays["titles.u64"]) == documents + 1
        and _spans(arrays["titles.u64"], len(arrays["titles.utf8"])),
        "peaks.u32": len(arrays["peaks.u32"]) == documents,
        "lengths.f64": len(arrays["lengths.f64"]) == documents,
    }
    for name, holds in fits.items():
        if not holds:
            raise SpaceError(f"{folder / name} is damaged: it does not fit the other files: build the space again")


def _spans(offsets: Array, size: int) -> bool:
    """Whether offsets cut a file of this size into parts, from end to end."""
    return len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == size and bool((offsets[1:] >= offsets[:-1]).all())


class Texts:
    """Texts in two mapped arrays; those of terms are sorted, and can be found."""

    __slots__ = ("_data", "_offsets")

    def __init__(self, data: Array, offsets: Array) -> None:
        self._data = data
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> str:
        return self._bytes(number).decode("utf-8", "replace")

    def _bytes(self, number: int) -> bytes:
        return self._data[int(self._offsets[number]) : int(self._offsets[number + 1])].tobytes()

    def find(self, text: str) -> int | None:
        """The number of a text, by bisection."""
        wanted = text.encode("utf-8", "replace")
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._bytes(low) == wanted else None
