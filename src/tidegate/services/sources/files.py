"""Events of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import SourceDeclaration
from tidegate.services.sources.event_format import KEYS, EventFormat, read_event_format

_FORMATS = ("csv", "ndjson", "parquet")


@dataclass(frozen=True)
class Files(EventFormat):
    """Events of one file, or of all files of a folder or pattern, with files that are added later."""

    path: str
    format: Literal["csv", "ndjson", "parquet"] | None = None
    """None: by the file's ending."""
    speed: float | None = None
    """Speed of the replay by the times of the events: 1 is real time, 10 ten times as fast. None: unthrottled."""


def _read(spot: Spot) -> Files:
    what = "a file, a folder or a pattern, such as data/*.csv"
    if not isinstance(spot.value, Mapping):
        return Files(spot.text(what))
    spots = spot.entries(("path", "format", "speed", *KEYS), "files")
    return Files(
        spots.get("path", spot.at("path", None)).text(what),
        cast("Any", spots["format"].choice(_FORMATS)) if "format" in spots else None,
        spots["speed"].number("a speed above 0", 0, 1e9, above=True) if "speed" in spots else None,
        **read_event_format(spots),
    )


DECLARATION = SourceDeclaration("files", Files, _read, "path", address_fields=("path",))
