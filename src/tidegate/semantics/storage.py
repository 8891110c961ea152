"""The folder of a space: plain little-endian arrays, one file each, and `space.json`, which describes them.

    space.json                  format, version, analysis, corpus, parameters; size and CRC-32 of every file
    terms.utf8   terms.u64      the terms in the order of their bytes; the offset of each
    postings.u64                the offset of each term's postings
    documents.u32 counts.u32    the postings: documents in ascending order, and number of occurrences
    titles.utf8  titles.u64     the titles of the documents; the offset of each
    peaks.u32                   occurrences of the most frequent term of each document
    lengths.f64                 each document's length as a vector of weights (`weights.py`)

Files are memory-mapped: no byte is read before it is needed, and processes share memory. `space.json` is written last,
and the folder is renamed to its final name after that, so an incomplete space never has this name.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np

from tidegate.errors import SpaceError
from tidegate.filters.vectors import NumpyArray
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
"""Files and the types of their elements."""


@dataclass(frozen=True, slots=True)
class CorpusSummary:
    """What a space was built from."""

    name: str
    documents: int
    """Number of documents in the space."""
    left_out: int
    """Number of documents that were too short."""
    words: int
    """Number of content words in all documents."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Decides which documents and terms are in a space."""

    least_words: int = 100
    """A document with fewer content words is left out: a stub relates words by chance."""
    least_documents: int = 3
    """A term in fewer documents is left out: a misspelling or a name, which relates to its document by chance."""

    def keeps(self, words: int) -> bool:
        """Return True if a document with this many content words is in the space."""
        return words >= max(1, self.least_words)


@dataclass(frozen=True, slots=True)
class Header:
    """The content of `space.json`."""

    corpus: CorpusSummary
    parameters: Parameters
    files: Mapping[str, tuple[int, int]]
    """Size in bytes and CRC-32 of each file."""

    def to_text(self) -> str:
        """Return the header as the text of its file."""
        files = {name: {"bytes": size, "crc32": crc} for name, (size, crc) in self.files.items()}
        document = {"format": FORMAT, "version": VERSION, "analysis": ANALYSIS}
        document |= {"corpus": asdict(self.corpus), "parameters": asdict(self.parameters), "files": files}
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class ArrayFileWriter:
    """Writes one file of a space sequentially."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._type = FILES[name]
        self._file: IO[bytes] = (folder / name).open("wb")
        self._size = self._crc = 0

    def write(self, values: NumpyArray | bytes) -> None:
        """Append values; numbers are converted to the file's type."""
        data = values if isinstance(values, bytes) else values.astype(self._type, copy=False).tobytes()
        self._file.write(data)
        self._size += len(data)
        self._crc = zlib.crc32(data, self._crc)

    def close(self) -> tuple[int, int]:
        """Close the file; return its size and CRC-32."""
        self._file.close()
        return self._size, self._crc


def read_header(folder: Path) -> Header:
    """Read `space.json`. Raises `SpaceError` if the folder is no space, or has a version that can't be read."""
    path = folder / HEADER
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        what = "is no folder" if not folder.is_dir() else f"has no {HEADER}"
        raise SpaceError(f"{folder} is no semantic space: it {what}; 'tidegate semantics build' makes one") from None
    except (OSError, ValueError) as exc:
        raise SpaceError(f"{path} can't be read: {exc}") from exc
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        shown = document.get("format") if isinstance(document, dict) else document
        raise SpaceError(f"{path}: expected the format {FORMAT!r}, not {shown!r}: this is no semantic space")
    version, analysis = document.get("version"), document.get("analysis")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        hint = "update Tidegate, or build it again" if newer else "build it again"
        raise SpaceError(f"{path}: the space has version {version!r}, and this Tidegate reads {VERSION}: {hint}")
    if analysis != ANALYSIS:
        raise SpaceError(
            f"{path}: the space was built with text analysis {analysis!r}, but this Tidegate uses {ANALYSIS!r}: "
            "build it again"
        )
    try:
        corpus, parameters, files = document["corpus"], document["parameters"], document["files"]
        return Header(
            CorpusSummary(str(corpus["name"]), *(int(corpus[key]) for key in ("documents", "left_out", "words"))),
            Parameters(*(int(parameters[key]) for key in ("least_words", "least_documents"))),
            {name: (int(entry["bytes"]), int(entry["crc32"])) for name, entry in files.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise SpaceError(f"{path} is damaged: {type(exc).__name__}: {exc}") from exc


def open_arrays(folder: Path, header: Header, verify: bool = False) -> dict[str, NumpyArray]:
    """Map every file after checking its size, and with `verify` its content. Raises `SpaceError`."""
    arrays: dict[str, NumpyArray] = {}
    for name, kind in FILES.items():
        path = folder / name
        if name not in header.files:
            raise SpaceError(f"{folder / HEADER} is damaged: it does not name {name}")
        expected, crc = header.files[name]
        try:
            size = path.stat().st_size
        except OSError as exc:
            raise SpaceError(f"{path} can't be read: {exc.strerror}; the space is incomplete: build it again") from exc
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


def _checksum(values: NumpyArray) -> int:
    data = values.view(np.uint8)
    crc = 0
    for begin in range(0, len(data), _CHUNK):
        crc = zlib.crc32(data[begin : begin + _CHUNK].data, crc)
    return crc


def _require_fit(folder: Path, header: Header, arrays: Mapping[str, NumpyArray]) -> None:
    """Raise `SpaceError` if the arrays do not fit each other, so that no index reads past an end."""
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


def _spans(offsets: NumpyArray, size: int) -> bool:
    """Return True if offsets divide a file of this size into parts without gaps."""
    return len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == size and bool((offsets[1:] >= offsets[:-1]).all())


class TextArray:
    """Texts in two mapped arrays. The texts of terms are sorted, so that `find` works."""

    __slots__ = ("_data", "_offsets")

    def __init__(self, data: NumpyArray, offsets: NumpyArray) -> None:
        self._data = data
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> str:
        return self._bytes(number).decode("utf-8", "replace")

    def _bytes(self, number: int) -> bytes:
        return self._data[int(self._offsets[number]) : int(self._offsets[number + 1])].tobytes()

    def find(self, text: str) -> int | None:
        """Return the number of a text by bisection; None if it is not there."""
        searched = text.encode("utf-8", "replace")
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(middle) < searched:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._bytes(low) == searched else None
