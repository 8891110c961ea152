"""Runs tests of the gateway with the oldest and the newest versions that the extra `server` allows.

The gateway uses internals of these libraries, so their versions have both bounds. The versions are installed into a
temporary folder that comes first on the path, so the environment does not change.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("httpcore", "httpx", "uvicorn")
TESTS = (
    "tests/gateway/test_httpx_internals.py",
    "tests/gateway/test_uvicorn_internals.py",
    "tests/gateway/transports/test_protocol.py",
    "tests/gateway/transports/test_sse.py",
    "tests/gateway/transports/test_websocket.py",
    "tests/gateway/routes/test_webhooks.py",
)
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}


def requirements() -> list[str]:
    """Return the requirements of the extra `server` for the packages whose internals are used."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [text for text in extras["server"] if text.startswith(PACKAGES)]


def run(resolution: str, arguments: list[str]) -> int:
    """Run the tests with one end of the allowed versions. Returns the exit code of pytest, or of the installation."""
    with tempfile.TemporaryDirectory() as folder:
        install = ["uv", "pip", "install", "--quiet", "--no-deps", "--resolution", resolution, "--target", folder]
        installed = subprocess.run([sys.executable, "-m", *install, *requirements()], check=False)
        if installed.returncode:
            return installed.returncode
        path = os.pathsep.join([folder, str(ROOT / "src"), str(ROOT)])
        versions = sorted(each.name.removesuffix(".dist-info") for each in Path(folder).glob("*.dist-info"))
        print(f"{', '.join(versions)}:", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", *arguments, *TESTS]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def main() -> int:
    """Run both ends, and return the first exit code that is not 0."""
    codes = [run(resolution, sys.argv[1:]) for resolution in RESOLUTIONS.values()]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
