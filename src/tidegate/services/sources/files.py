"""Events of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import SourceDeclaration

_FORMATS = ("csv", "ndjson", "parquet")


@dataclass(frozen=True)
class Files:
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
    settings = spot.entries(("path", "format", "speed"), "files")
    return Files(
        settings.get("path", spot.at("path", None)).text(what),
        cast("Any", settings["format"].choice(_FORMATS)) if "format" in settings else None,
        settings["speed"].number("a speed above 0", 0, 1e9, above=True) if "speed" in settings else None,
    )


DECLARATION = SourceDeclaration("files", Files, _read, "path", address_fields=("path",))
