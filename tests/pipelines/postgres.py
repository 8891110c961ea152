"""A PostgreSQL server of a test's own, from Debian's packages, in a folder that goes with it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def _user() -> pwd.struct_passwd | None:
    """Who runs it: PostgreSQL refuses to be root."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid())
    return next((each for each in pwd.getpwall() if each.pw_name == "postgres"), None)


USER = _user()
FOLDER = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None) if USER else None
"""Where its programs are; None where it can't be started."""


@contextmanager
def server() -> Iterator[tuple[str, Callable[[str], None]]]:
    """Yield the JDBC URL of a server, and a function that executes SQL there."""
    assert USER is not None
    home = tempfile.mkdtemp(prefix="tidegate-postgres-")
    os.chown(home, USER.pw_uid, USER.pw_gid)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    data = f"{home}/data"
    settings = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        _run(home, "initdb", "-D", data, "-A", "trust", "-U", "tests", "--no-sync")
        _run(home, "pg_ctl", "-D", data, "-w", "-l", f"{home}/log", "-o", settings, "start")
        try:
            reached = ("-h", "127.0.0.1", "-p", port, "-U", "tests", "-d", "postgres")
            yield (
                f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=tests",
                lambda sql: _run(home, "psql", "-q", "-v", "ON_ERROR_STOP=1", *reached, "-c", sql),
            )
        finally:
            _run(home, "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home)


def _run(home: str, program: str, *arguments: str) -> None:
    assert USER is not None
    assert FOLDER is not None
    as_other = {"user": USER.pw_uid, "group": USER.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
    subprocess.run(
        [str(FOLDER / program), *arguments],
        cwd=home,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **as_other,  # type: ignore[call-overload]
    )
