"""Secrets that commands read from a file or standard input: other users can see a command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidegate.errors import EnvironmentProblem

STDIN = "-"
MAX_SECRET_BYTES = 64 * 1024


def read_secret_file(path: str, option: str) -> str:
    """Read a secret from a file, or from standard input for `-`, without line breaks at the end.

    Raises an `EnvironmentProblem` that names the option and the file, never the content.
    """
    try:
        if path == STDIN:
            raw = sys.stdin.buffer.read(MAX_SECRET_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(MAX_SECRET_BYTES + 1)
        text = raw.decode("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise EnvironmentProblem(f"{option}: can't read {path!r}: {reason}") from None
    if len(raw) > MAX_SECRET_BYTES:
        raise EnvironmentProblem(f"{option}: {path!r} has more than {MAX_SECRET_BYTES:,} bytes; expected a secret")
    if not text.strip():
        raise EnvironmentProblem(f"{option}: {path!r} is empty; write the secret into it")
    return text


def write_secret_file(path: str, secret: str, option: str) -> None:
    """Write a secret to a new file that only its owner can read. Raises if the file exists."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secret}\n")
    except OSError as error:
        raise EnvironmentProblem(f"{option}: can't write {path!r}: {error.strerror}") from None
