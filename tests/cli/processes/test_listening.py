"""Which address a gateway may listen on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli.data_folder.home import Home
from tidegate.cli.main import app
from tidegate.cli.processes.listening import find_port, gateway_url, is_loopback, require_keys
from tidegate.cli.profile import Profile
from tidegate.errors import EnvironmentProblem
from tidegate.gateway.settings import AccessSettings, OidcSettings


def test_listening_beyond_loopback_requires_a_key(tmp_path: Path) -> None:
    home = Home(tmp_path)
    require_keys(home, "127.0.0.1")
    with pytest.raises(
        EnvironmentProblem, match=r"^--host 0\.0\.0\.0: anyone who reaches .*: tidegate keys create NAME"
    ):
        require_keys(home, "0.0.0.0")
    created = CliRunner().invoke(app, ["keys", "create", "me", "--role", "admin", "--data", str(tmp_path)])
    assert created.exit_code == 0, created.output
    require_keys(home, "0.0.0.0")


def test_listening_beyond_loopback_is_allowed_with_an_issuer(tmp_path: Path) -> None:
    oidc = OidcSettings("https://id.example.org", "tidegate")
    require_keys(Home(tmp_path, Profile(access=AccessSettings(oidc))), "0.0.0.0")


def test_gateway_without_keys_does_not_listen_beyond_loopback(tmp_path: Path) -> None:
    home = Home(tmp_path, Profile(access=AccessSettings(required=False)))
    require_keys(home, "127.0.0.1")
    with pytest.raises(EnvironmentProblem, match=r"^--host 0\.0\.0\.0: the profile says access: {required: false}, .*"):
        require_keys(home, "0.0.0.0")


def test_host_that_is_no_address_is_refused() -> None:
    with pytest.raises(EnvironmentProblem, match=r"expected an address such as 127\.0\.0\.1, not 'my host'"):
        is_loopback("my host")


def test_port_in_use_is_refused_with_its_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=f"can't listen on http://127.0.0.1:{port}: .*; choose another"):
            find_port("127.0.0.1", port)
    assert find_port("127.0.0.1", 0) > 0


def test_url_of_an_ipv6_address_has_brackets() -> None:
    assert (gateway_url("127.0.0.1", 80), gateway_url("::1", 80)) == ("http://127.0.0.1:80", "http://[::1]:80")
