"""Generates the blocking client, `client/sync_client`, from the asyncio client, `client/async_client`.

`--check` writes nothing and fails if a generated file is stale. The rules are substitutions of whole words, also in
docstrings; ruff then sorts the imports and formats the result. See docs/adr/0023-generate-the-blocking-client.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tidegate" / "client" / "async_client"
TARGET = SOURCE.with_name("sync_client")
HEADER = "# Generated from {name} by scripts/generate_sync_client.py; do not edit.\n"
PACKAGE_DOCSTRING = '"""The blocking client. Generated from `tidegate.client.async_client`: change that package."""\n'

RULES = (
    (r"async (def|for|with)\b", r"\1"),
    (r"await ", ""),
    (r"several tasks of one event loop", "several threads"),
    (r"(one|the) task", r"\1 thread"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"import asyncio", "import time"),
    (r"async_client", "sync_client"),
    (r"Stop(Async)Iteration", "StopIteration"),
    (r"Async([A-Z]\w*)", r"\1"),
    (r"asynccontextmanager", "contextmanager"),
    (r"aclosing", "closing"),
    (r"aclose", "close"),
    (r"aread", "read"),
    (r"anext", "next"),
    (r"aiter_(bytes|raw)", r"iter_\1"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
)
_LEFTOVER = re.compile(r"async|await|\ba(next|iter|close|read)", re.IGNORECASE)


def main() -> None:
    """Write the generated files, or with `--check` exit with status 1 if one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a generated file is stale")
    check = parser.parse_args().check
    stale = stale_files()
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"stale: {names}; run `make generate`")
    for path, text in stale.items():
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


def stale_files(source: Path = SOURCE, target: Path = TARGET) -> dict[Path, str | None]:
    """Return each generated file that differs from its source, with its right text; None if it must be removed."""
    texts = {target / path.name: generated(path) for path in sorted(source.glob("*.py"))}
    stale: dict[Path, str | None] = {
        path: text for path, text in texts.items() if not path.exists() or path.read_text() != text
    }
    return stale | {path: None for path in target.glob("*.py") if path not in texts}


def generated(path: Path) -> str:
    """Return the blocking version of one module. Raises ValueError if the rules leave something asynchronous."""
    header = HEADER.format(name=f"{path.parent.name}/{path.name}")
    if path.name == "__init__.py":
        return header + PACKAGE_DOCSTRING
    text = path.read_text()
    for pattern, replacement in RULES:
        text = re.sub(rf"\b{pattern}", replacement, text)
    if leftover := _LEFTOVER.search(text):
        line = text.count("\n", 0, leftover.start()) + 1
        raise ValueError(f"{path.name}: no rule for {leftover[0]!r} near line {line}; add one to RULES")
    return header + _formatted(text)


def _formatted(text: str) -> str:
    for command in (("check", "--select", "I", "--fix", "--quiet"), ("format", "--quiet")):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET / "module.py"), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    main()
