"""`tidegate doctor`: what is missing, and how to get it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.data_folder.permissions import open_to_others

_LEAST_JAVA = 17
_LEAST_DISK_GB = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    found: str
    remedy: str = ""
    """What to do about it; empty where it is fine."""
    optional: bool = False
    """Whether Tidegate runs without it, if not as well."""


def doctor(
    port: Annotated[int, typer.Option(help="The port that a gateway would take.")] = 8080,
    data: Annotated[str, typer.Option(help="Where streams would be kept.")] = ".",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Say what this machine lacks to run Tidegate, and how to get it; exit code 1 if it can't run."""
    findings = examine(port, Path(data))
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        for each in findings:
            typer.echo(f"{_verdict(each):<7}  {each.what:<10} {each.found}")
            if each.remedy:
                typer.echo(f"         {'':<10} {each.remedy}")
    raise typer.Exit(0 if all(each.ok or each.optional for each in findings) else 1)


def _verdict(finding: Finding) -> str:
    return "ok" if finding.ok else "slower" if finding.optional else "MISSING"


def examine(port: int, data: Path) -> list[Finding]:
    """Look at everything."""
    checks: list[Callable[[], Finding]] = [
        python,
        java,
        lambda: package("pyarrow", "arrow"),
        lambda: package("pyspark", "spark"),
        connector,
        lambda: free_port(port),
        lambda: disk(data),
        lambda: folder(data),
    ]
    return [check() for check in checks]


def python() -> Finding:
    """Look at the interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    return _finding("python", sys.version_info[:2] >= (3, 11), version, "install Python 3.11 or newer")


def java() -> Finding:
    """Look for a JDK, in JAVA_HOME first."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    remedy = "install a JDK 17+ (Debian: apt-get install openjdk-17-jdk-headless), or set JAVA_HOME"
    if shutil.which(command) is None:
        return Finding("java", False, f"no {command}", remedy)
    told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    number = int(version[1]) if version else 0
    return _finding("java", number >= _LEAST_JAVA, f"version {number or 'unknown'}", remedy)


def package(name: str, extra: str) -> Finding:
    """Look for a Python package that an extra brings."""
    there = find_spec(name) is not None
    return _finding(name, there, "installed" if there else "not installed", f"pip install 'tidegate[{extra}]'")


def connector() -> Finding:
    """Look for the connector to Spark, or what compiles it."""
    if find_spec("pyspark") is None:
        return Finding("connector", False, "needs pyspark", "pip install 'tidegate[spark]'", optional=True)
    from tidegate.pipelines.connector import build

    found = build.find()
    if found is not None:
        return Finding("connector", True, found.name)
    if build.compiler() is not None:
        return Finding("connector", True, "compiled at the first start")
    remedy = "install a JDK, not only a JRE, which compiles it; or a wheel, which carries it"
    found_none = "not compiled, and no javac: services run in micro-batches only"
    return Finding("connector", False, found_none, remedy, optional=True)


def free_port(port: int) -> Finding:
    """Look whether a port can be had on loopback."""
    if not 0 < port < 2**16:
        return Finding("port", False, f"{port} is no port", "choose one from 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return Finding("port", False, f"{port}: {error.strerror}", "choose another one with --port")
    return Finding("port", True, f"{port} is free")


def disk(folder: Path) -> Finding:
    """Look at the room where streams would be kept."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free_gb = shutil.disk_usage(there).free / 2**30
    if not os.access(there, os.W_OK):
        return Finding("disk", False, f"{there} can't be written", "choose another folder with --data")
    remedy = f"free {_LEAST_DISK_GB} GiB, or choose another folder with --data"
    return _finding("disk", free_gb >= _LEAST_DISK_GB, f"{free_gb:.0f} GiB free in {there}", remedy)


def folder(data: Path) -> Finding:
    """Look whether other users of this machine can read a data folder."""
    if not (data / "registry.sqlite").exists() and not (data / "log").is_dir():
        return Finding("folder", True, f"no data in {data.absolute()} yet")
    found = open_to_others(data)
    if not found:
        return Finding("folder", True, f"{data.absolute()} is private")
    said = f"other users can reach {found[0].absolute()}"
    return Finding("folder", False, said, f"restart Tidegate, which closes it, or chmod 700 {data.absolute()}")


def _finding(what: str, ok: bool, found: str, remedy: str) -> Finding:
    return Finding(what, ok, found, "" if ok else remedy)
