"""The key `checkpoints` of a profile: where the states of services are kept."""

from __future__ import annotations

import re
from typing import Any

from tidegate.errors import EnvironmentProblem

_URI = re.compile(r"[a-z][a-z0-9+.-]*://[^\s]*[^/\s]")


def read_checkpoints(value: Any, path: str) -> str | None:
    """Read `checkpoints` of the profile at `path`: the absolute path of a folder, or a URI without `file:`."""
    if value is None:
        return None
    text = value.removeprefix("file://") if isinstance(value, str) else ""
    if not text.startswith("/") and not _URI.fullmatch(text):
        raise EnvironmentProblem(
            f"{path}: checkpoints: expected the absolute path of a folder, or a URI such as hdfs://head/tidegate or "
            f"s3a://bucket/tidegate, not {value!r}"
        )
    return text
