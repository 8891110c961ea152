"""A real PostgreSQL for tests: a server of its own on loopback, gone when the tests are."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.certificates import Authority
from tests.ports import free_port
from tidegate.errors import EnvironmentProblem

USER, PASSWORD, PASSWORD_IN_URL = "tidegate", "hush%/@:", "hush%25%2F%40%3A"
START_S = 60

# What is lost when the machine fails is of no matter here.
_SETTINGS = "-c listen_addresses=127.0.0.1 -c fsync=off -c full_page_writes=off -c shared_buffers=16MB"


def need_postgres() -> Path:
    """Return the folder of the server's programs. Raises an EnvironmentProblem that names what is missing."""
    folders = [Path(found).resolve().parent for found in (shutil.which("pg_ctl"),) if found]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    folder = next((each for each in folders if (each / "initdb").exists() and (each / "pg_ctl").exists()), None)
    if folder is None:
        raise EnvironmentProblem("neither on PATH nor in /usr/lib/postgresql are 'initdb' and 'pg_ctl'")
    _unprivileged()
    return folder


def postgres_or_skip() -> Path:
    """Return what `need_postgres` does, or skip the test that asks."""
    try:
        return need_postgres()
    except EnvironmentProblem as exc:
        pytest.skip(f"no PostgreSQL: {exc}")


@dataclass(frozen=True)
class Server:
    """A server that tests can stop and start again, with the same address and data."""

    url: str
    stop: Callable[[], None]
    start: Callable[[], None]


@contextmanager
def running(programs: Path, authority: Authority | None = None) -> Iterator[str]:
    """Do the same as `serving`, and give only the URL."""
    with serving(programs, authority) as server:
        yield server.url


@contextmanager
def serving(programs: Path, authority: Authority | None = None) -> Iterator[Server]:
    """Start a server, and give it with the URL of its database when it answers.

    With an authority it takes connections by TLS alone, from whoever has a client certificate and the password.
    """
    who = _unprivileged()
    with TemporaryDirectory(prefix="tidegate-pg-") as name:  # short: a socket's path has at most 107 characters
        folder = Path(name)
        (folder / "password").write_text(PASSWORD)
        if who:
            for each in (folder, folder / "password"):
                shutil.chown(each, who["user"], who["group"])
        data, port = folder / "data", free_port()

        def run(program: str, *arguments: str) -> None:
            with (folder / "said").open("ab") as said:
                command = [str(programs / program), "-D", str(data), *arguments]
                done = subprocess.run(
                    command, stdout=said, stderr=said, cwd=folder, timeout=START_S, check=False, **who
                )
            if done.returncode:
                raise RuntimeError(f"{program} failed:\n{(folder / 'said').read_text()[-3_000:]}")

        run("initdb", "-U", USER, "-A", "scram-sha-256", "--pwfile", str(folder / "password"), "-E", "UTF8", "-N")
        settings = _SETTINGS if authority is None else f"{_SETTINGS} {_secured(data, authority, who)}"
        start = partial(run, "pg_ctl", "-w", "-o", f"{settings} -p {port} -k {folder}", "start")
        stop = partial(run, "pg_ctl", "-w", "-m", "immediate", "stop")
        start()
        try:
            yield Server(f"postgresql://{USER}:{PASSWORD_IN_URL}@127.0.0.1:{port}/postgres", stop, start)
        finally:
            stop()


def _secured(data: Path, authority: Authority, who: Mapping[str, Any]) -> str:
    """Return the settings with which a server accepts only TLS connections."""
    server = authority.server("postgres", hosts=["localhost"])
    shutil.copy(authority.cert, data / "ca.pem")
    shutil.copy(server.cert, data / "server.pem")
    shutil.copy(server.key, data / "server.key")
    (data / "server.key").chmod(0o600)
    (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n")
    for each in ("ca.pem", "server.pem", "server.key", "pg_hba.conf"):
        if who:
            shutil.chown(data / each, who["user"], who["group"])
    return "-c ssl=on -c ssl_ca_file=ca.pem -c ssl_cert_file=server.pem -c ssl_key_file=server.key"


def _unprivileged() -> Mapping[str, Any]:
    """Whom to run the server as: it refuses to be root's."""
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError as exc:
        raise EnvironmentProblem("PostgreSQL refuses to run as root, and there is no user 'postgres'") from exc
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
