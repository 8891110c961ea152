"""Finds out whether the end of a partition was lost, so that its offsets are never used for other records.

A power failure, a file system that was restored, or a disk that was full may cut off records that readers have seen.
Those readers continue behind them. If new records were appended where the old ones were, they would be skipped. The
writer therefore continues at a later offset, and readers get a gap.

Each partition has a file `writer`: `open BOOT` while it is written to, `closed END` after that.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tidegate.logs.files import TIME, Segment, segments_of, whole
from tidegate.logs.marks import source_of

MAX_LOST_BYTES = 64 * 1024 * 1024
"""Longest append that is assumed to have been lost."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def note_open(folder: Path) -> None:
    """Note that a partition is written to. The page cache survives a killed process, but not the end of this boot."""
    _write(folder, f"open {_boot()}")


def note_closed(folder: Path, end: int) -> None:
    """Note where a partition ended when its writer closed it, unless it is deleted at this moment."""
    with suppress(OSError):
        _write(folder, f"closed {end}")


def _write(folder: Path, text: str) -> None:
    draft = folder / "writer.new"
    with open(draft, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / "writer")


def next_offset(folder: Path, segment: Segment, end: int, segment_bytes: int) -> int:
    """Return the offset of the next record: `end`, or a later one if records were lost behind it.

    `segment` is the newest segment, and `end` the offset after its last complete record.
    """
    furthest = segment.base + segment_bytes + MAX_LOST_BYTES
    state, _, detail = _read(folder / "writer").partition(" ")
    candidates = [end]
    if _furthest_reader(folder) > end:
        candidates.append(furthest)
    if state == "closed" and detail.isdecimal() and int(detail) > end:
        candidates.append(int(detail) + 1)  # a reader at the old end gets a gap, too
    elif state == "open" and detail != _boot():
        candidates.append(furthest)
    if _has_time_between(segment, end, furthest):
        candidates.append(furthest)
    return max(candidates)


def _furthest_reader(folder: Path) -> int:
    """Return an offset that a service has come to in a partition, by its output; 0 if none is known."""
    positions = [0]
    for output in folder.parent.parent.glob(f"*/{folder.parent.name}.{folder.name}"):
        mark = _read(output / "mark").split()
        if mark and mark[0].isdecimal():
            positions.append(int(mark[0]))
        last = _last_record(output)
        source = None if last is None else source_of(last)
        if source is not None and source[0] == f"{folder.parent.name}/{folder.name}":
            at = source[1] if isinstance(source[1], int) else source[1][0]
            positions.append(at + 1)  # where the record ended is not known
    return max(positions)


def _last_record(folder: Path) -> bytes | None:
    with suppress(OSError):
        for segment in reversed(segments_of(str(folder))):
            with open(segment.path, "rb") as file:
                size = whole(file.fileno(), segment.size())
                if size:
                    file.seek(whole(file.fileno(), size - 1))
                    return file.read(size - file.tell())
    return None


def _has_time_between(segment: Segment, end: int, furthest: int) -> bool:
    """True if the time index has records behind the end; `furthest` is the last offset that it may have."""
    with suppress(OSError), open(segment.times_path, "rb") as file:
        data = file.read()
        size = len(data) // TIME.size * TIME.size
        return size > 0 and end < TIME.unpack(data[size - TIME.size : size])[1] <= furthest
    return False


def _boot() -> str:
    return _read(_BOOT_ID) or "unknown"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
