"""The registry in a PostgreSQL that takes connections by TLS alone, with a client certificate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import postgres_server
from tests.certificates import Authority
from tests.postgres_server import PASSWORD, USER
from tests.security import processes
from tidegate.cli.data_folder.home import Home
from tidegate.cli.profile import load_profile
from tidegate.errors import RegistryError

pytestmark = pytest.mark.postgres


@dataclass(frozen=True)
class Server:
    """A PostgreSQL at `localhost`, which is the one name in its certificate."""

    port: int
    authority: Authority

    def profile(self, folder: Path, tls: Any, host: str = "localhost") -> Path:
        url = f"postgresql://{USER}@{host}:{self.port}/postgres"
        (folder / "password").write_text(f"{PASSWORD}\n")
        said = {"url": url, "password": "file:password", **({} if tls is None else {"tls": tls})}
        path = folder / "profile.yaml"
        path.write_text(yaml.safe_dump({"registry": said}))
        return path

    def whole(self, **other: Any) -> dict[str, Any]:
        issued = self.authority.client("tidegate")
        return {"ca": str(self.authority.cert), "cert": str(issued.cert), "key": str(issued.key), **other}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    with postgres_server.running(postgres_server.postgres_or_skip(), authority) as url:
        yield Server(int(url.rpartition(":")[2].partition("/")[0]), authority)


def opened(profile: Path, data: Path) -> None:
    Home(data, load_profile(str(profile))).registry().close()


def test_commands_use_a_registry_over_tls(server: Server, tmp_path: Path) -> None:
    profile = server.profile(tmp_path, server.whole())
    made = processes.tidegate("keys", "create", "me", "--role", "admin", "--profile", profile, data=tmp_path / "data")
    assert made.returncode == 0, made.stderr
    listed = processes.tidegate("keys", "list", "--profile", profile, data=tmp_path / "data")
    assert "me" in listed.stdout
    assert PASSWORD not in made.stdout + made.stderr + listed.stdout + listed.stderr


@pytest.mark.parametrize("wrong", ["no tls", "no certificate", "another authority", "another name"])
def test_connections_that_are_not_verified_are_refused(server: Server, tmp_path: Path, wrong: str) -> None:
    tls: Any = server.whole()
    host = "localhost"
    match wrong:
        case "no tls":
            tls = None
        case "no certificate":
            tls = {"ca": str(server.authority.cert)}
        case "another authority":
            tls["ca"] = str(Authority(tmp_path / "foreign", "Foreign CA").cert)
        case "another name":
            host = "127.0.0.1"
    profile = server.profile(tmp_path, tls, host)
    with pytest.raises(RegistryError) as raised:
        opened(profile, tmp_path)
    said = {
        "no tls": "certificate",
        "no certificate": "certificate",
        "another authority": "certificate verify failed",
        "another name": 'does not match host name "127.0.0.1"',
    }
    assert said[wrong] in str(raised.value)
    assert PASSWORD not in str(raised.value)


def test_other_server_name_is_accepted_only_if_the_profile_allows_it(server: Server, tmp_path: Path) -> None:
    opened(server.profile(tmp_path, server.whole(mode="verify-ca"), "127.0.0.1"), tmp_path)
