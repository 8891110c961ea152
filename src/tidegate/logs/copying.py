"""Copies a log of files while it is written, and continues a copy.

Outputs are copied before their inputs, and marks before their output. So a copy never has an output that is ahead of
its input, and a restart with the copy computes missing results again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from tidegate.logs import torn
from tidegate.logs.files import Segment, segments_of, whole
from tidegate.logs.log import is_name

CHUNK_BYTES = 1 << 20
CONTINUE_AT_BYTES = 1 << 40
"""A restored partition continues at the next multiple: what the original had after the copy is never known."""

OnCopied = Callable[[Path, int, str], None]
"""Called with each file of a copy, its size and its SHA-256."""


def streams_of(root: Path) -> list[str]:
    """Return the names of the streams in a folder."""
    return sorted(path.parent.name for path in root.glob("*/generation") if is_name(path.parent.name))


def copy_streams(root: Path, target: Path, streams: Iterable[str], on_copied: OnCopied) -> None:
    """Copy streams in the given order, each up to its last complete record. A stream that is deleted is left out."""
    for stream in streams:
        with suppress(FileNotFoundError):
            _copy_stream(root / stream, target / stream, on_copied)


def _copy_stream(source: Path, target: Path, on_copied: OnCopied) -> None:
    generation = (source / "generation").read_bytes()
    for partition in sorted(path for path in source.iterdir() if path.is_dir()):
        folder = target / partition.name
        folder.mkdir(parents=True, exist_ok=True)
        if (partition / "mark").exists():
            copy_file(partition / "mark", folder / "mark", on_copied)
        for segment in segments_of(str(partition)):
            with suppress(FileNotFoundError):  # it has expired
                _copy_segment(segment, folder, on_copied)
    if (source / "generation").read_bytes() != generation:
        raise FileNotFoundError(source)
    target.mkdir(parents=True, exist_ok=True)
    (target / "generation").write_bytes(generation)
    on_copied(target / "generation", len(generation), hashlib.sha256(generation).hexdigest())


def _copy_segment(segment: Segment, folder: Path, on_copied: OnCopied) -> None:
    with suppress(FileNotFoundError):  # the time index first: an entry without its record would be wrong
        copy_file(Path(segment.times_path), folder / Path(segment.times_path).name, on_copied)
    with open(segment.path, "rb") as file:
        size = whole(file.fileno(), os.fstat(file.fileno()).st_size)
    copy_file(Path(segment.path), folder / Path(segment.path).name, on_copied, size)


def copy_file(source: Path, target: Path, on_copied: OnCopied, size: int | None = None) -> None:
    """Copy a file, or its first bytes, with its time."""
    digest, copied = hashlib.sha256(), 0
    with open(source, "rb") as read, open(target, "wb") as written:
        while data := read.read(CHUNK_BYTES if size is None else min(CHUNK_BYTES, size - copied)):
            written.write(data)
            digest.update(data)
            copied += len(data)
    modified = os.stat(source).st_mtime_ns
    os.utime(target, ns=(modified, modified))
    on_copied(target, copied, digest.hexdigest())


def continue_far_away(root: Path) -> None:
    """Let all partitions of a restored log continue at offsets that the original has not used.

    Readers that have seen more of the original than the copy has get a gap, and miss no later event.
    """
    for stream in streams_of(root):
        for partition in (path for path in (root / stream).iterdir() if path.is_dir()):
            segments = segments_of(str(partition))
            if not segments:
                continue
            end = segments[-1].end()
            start = (end // CONTINUE_AT_BYTES + 1) * CONTINUE_AT_BYTES
            if end == segments[-1].base:
                segments[-1].unlink()
            Path(Segment(str(partition), start).path).touch()
            torn.note_closed(partition, start)
