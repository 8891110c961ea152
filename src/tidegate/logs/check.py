"""Finds records of a log of files that are lost or damaged. Reads every record; another process may write meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tidegate.logs.copying import CONTINUE_AT_BYTES, streams_of
from tidegate.logs.files import Segment, segments_of


@dataclass(frozen=True, slots=True)
class LogFinding:
    """Offsets of a partition whose records can't be read."""

    stream: str
    partition: str
    kind: Literal["lost", "damaged"]
    """`lost`: no segment has these offsets. `damaged`: the bytes there are no record."""
    begin: int
    end: int

    @property
    def place(self) -> str:
        """The partition and the offsets, for messages."""
        return f"{self.stream}/{self.partition} from {self.begin} to {self.end}"


def check_log(root: Path) -> Iterator[LogFinding]:
    """Yield lost and damaged ranges, by stream and partition. The end of the newest segment may be incomplete."""
    for stream in streams_of(root):
        with suppress(FileNotFoundError):  # it was deleted
            for partition in sorted(path for path in (root / stream).iterdir() if path.is_dir()):
                yield from _check_partition(stream, partition)


def _check_partition(stream: str, folder: Path) -> Iterator[LogFinding]:
    end: int | None = None
    segments = segments_of(str(folder))
    for segment in segments:
        try:
            following, damaged = _read_segment(segment, is_newest=segment is segments[-1])
        except FileNotFoundError:
            continue  # it has expired
        # A restored log continues far away, with nothing lost in between.
        is_restored = segment.base % CONTINUE_AT_BYTES == 0
        if end is not None and segment.base > end and not is_restored:
            yield LogFinding(stream, folder.name, "lost", end, segment.base)
        for begin, stop in damaged:
            yield LogFinding(stream, folder.name, "damaged", begin, stop)
        end = following


def _read_segment(segment: Segment, *, is_newest: bool) -> tuple[int, list[tuple[int, int]]]:
    """Return the offset after the last complete record, and the ranges that are no records."""
    at, damaged = segment.base, list[tuple[int, int]]()
    with open(segment.path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                if not is_newest:
                    damaged.append((at, at + len(line)))
                    at += len(line)
                break
            if not (line.startswith(b"{") and line.rstrip().endswith(b"}")):
                if damaged and damaged[-1][1] == at:
                    damaged[-1] = damaged[-1][0], at + len(line)
                else:
                    damaged.append((at, at + len(line)))
            at += len(line)
    return at, damaged
