"""Looks for known vulnerabilities in the Python packages that a container of Tidegate runs: deploy/requirements.txt.

Asks PyPI by pip-audit, or, with --database, an export of the OSV database on this machine (`all.zip` of its ecosystem
PyPI), for which no network is needed. Ends with 0 only when every package was looked up and nothing was found; with 1
when something was found, and with 3 when packages could not be looked up.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

REQUIREMENTS = Path(__file__).resolve().parents[1] / "deploy" / "requirements.txt"
FOUND, UNKNOWN = 1, 3
HELP = "give an export of OSV's database with --database, make audit DATABASE=all.zip"

Advisories = dict[str, list[dict[str, Any]]]
"""Entries of OSV by canonical name of the package."""


def main() -> None:
    """Audit, and end with a code that says how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", type=Path, help="an OSV export of PyPI, all.zip")
    parser.add_argument("--requirements", type=Path, default=REQUIREMENTS)
    parser.add_argument("more", nargs="*", help="options for pip-audit, behind --")
    chosen = parser.parse_args()
    if chosen.database is None:
        sys.exit(audit(chosen.requirements, chosen.more))
    with serving(read(chosen.database)) as url:
        sys.exit(audit(chosen.requirements, ["--vulnerability-service", "osv", "--osv-url", url, *chosen.more]))


def audit(requirements: Path, more: list[str]) -> int:
    """Run pip-audit, print its findings, and return the exit code."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(requirements), "--require-hashes"]
    command += ["--disable-pip", "--progress-spinner", "off", "--format", "json", *more]
    env = {**os.environ, "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"]))}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    try:
        packages = json.loads(ended.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (ended.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        print(f"error: nothing was audited: the database can't be reached: {last}\n{HELP}", file=sys.stderr)
        return UNKNOWN
    skipped = [each for each in packages if "skip_reason" in each]
    found = [(each, bug) for each in packages for bug in each.get("vulns", ())]
    for each, bug in found:
        fixed = ", ".join(bug["fix_versions"]) or "no version"
        print(f"{each['name']} {each['version']}: {bug['id']} {' '.join(bug['aliases'])}, fixed in {fixed}")
    print(f"{len(packages) - len(skipped)} packages audited, {len(found)} known vulnerabilities")
    if skipped:
        said = f"error: {len(skipped)} of {len(packages)} packages could not be audited, such as {skipped[0]['name']}: "
        print(f"{said}{skipped[0]['skip_reason']}\n{HELP}", file=sys.stderr)
    return FOUND if found else UNKNOWN if skipped else 0


def canonical(name: str) -> str:
    """A package's name in the one form that equals all its spellings."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(path: Path) -> Advisories:
    """Read an export of OSV, and say how new it is."""
    found: Advisories = {}
    newest = ""
    try:
        with zipfile.ZipFile(path) as archive:
            for file in archive.namelist():
                entry = json.loads(archive.read(file))
                newest = max(newest, entry.get("modified", ""))
                ours = [
                    each["package"]
                    for each in entry.get("affected", ())
                    if each.get("package", {}).get("ecosystem") == "PyPI"
                ]
                for package in ours:
                    package["name"] = canonical(package["name"])  # pip-audit compares names as they are
                packages = {package["name"] for package in ours}
                for name in packages if "withdrawn" not in entry else ():
                    found.setdefault(name, []).append(entry)
    except (OSError, zipfile.BadZipFile, ValueError) as problem:
        sys.exit(f"error: expected an OSV export of PyPI (all.zip) in {str(path)!r}: {problem}")
    if not found:
        sys.exit(f"error: expected an OSV export of PyPI (all.zip) in {str(path)!r}: it has no entry on any package")
    print(f"{path}: {len(found)} packages, newest entry of {newest[:10]}")
    return found


def is_affected(entry: dict[str, Any], package: str, version: str) -> bool:
    """True if an entry names a version of a package, in its list or in one of its ranges."""
    at = Version(version)
    for each in entry.get("affected", ()):
        told = each.get("package", {})
        if told.get("ecosystem") != "PyPI" or canonical(told.get("name", "")) != package:
            continue
        if any(parsed(one) == at for one in each.get("versions", ())):
            return True
        if any(is_within(one.get("events", ()), at) for one in each.get("ranges", ()) if one["type"] == "ECOSYSTEM"):
            return True
    return False


def is_within(events: Any, at: Version) -> bool:
    """True if a version is in a range of OSV, whose events are its begin and end."""
    affected = False
    # What can't be read as a version counts as the lowest: an introduction that is not understood begins at once.
    for kind, text in sorted(
        ((kind, text) for event in events for kind, text in event.items()),
        key=lambda each: parsed(each[1]) or Version("0.dev0"),
    ):
        bound = parsed(text) or Version("0.dev0")
        if kind == "introduced" and bound <= at:
            affected = True
        elif (kind == "fixed" and bound <= at) or (kind == "last_affected" and bound < at):
            affected = False
    return affected


def parsed(text: str) -> Version | None:
    """A version, or None where the text is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@contextmanager
def serving(advisories: Advisories) -> Iterator[str]:
    """Answer OSV's query on loopback, as pip-audit asks it; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        """Answers `POST /v1/query`."""

        def do_POST(self) -> None:
            """Send the entries that fit a package and its version."""
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            name, version = canonical(asked["package"]["name"]), asked["version"]
            fitting = [each for each in advisories.get(name, ()) if is_affected(each, name, version)]
            body = json.dumps({"vulns": fitting} if fitting else {}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no line for each request."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()


if __name__ == "__main__":
    main()
