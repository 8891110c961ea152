"""`tidegate link`: trust in neighbours, signing keys and pinned keys; `links` in the profile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.routes.test_links import Broker, running
from tests.security.hostile import run_tidegate
from tidegate.cli.profile import load_profile
from tidegate.errors import EnvironmentProblem
from tidegate.federation.link.keys import key_set, new_key


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("links"), "here", origins={"pinned": (new_key(),)})
    with running(broker):
        broker.call("POST", "/v1/links", json={"name": "city"})
        yield broker


def test_change_sets_transit_and_public_services_of_a_neighbour(here: Broker) -> None:
    change = ("link", "change", "city", "--url", here.url)
    changed = run_tidegate(*change, "--transit", "port", "--transit", "rail", "--public", "gps", "--public", "a@port")
    assert changed == ("transit: port, rail\npublic: a@port, gps@city\n", "")
    assert run_tidegate(*change, "--no-public")[0] == "transit: port, rail\npublic: nothing\n"
    assert run_tidegate(*change, "--no-transit")[0] == "transit: nothing\npublic: nothing\n"
    for args, problem in (
        (("--transit", "a b"), "expected a broker's name of letters, digits, _ and -, at most 40, not 'a b'"),
        (("--public", "a b"), "public: expected the name of a service such as gps or gps@city, not 'a b'"),
    ):
        assert problem in run_tidegate(*change, *args)[1]
    assert (
        "there is no link to 'cty'; did you mean 'city'?"
        in run_tidegate("link", "change", "cty", "--no-public", "--url", here.url)[1]
    )


def test_keys_of_a_broker_are_pinned_and_unpinned(here: Broker, tmp_path: Path) -> None:
    key, file, to = new_key(), tmp_path / "far.jwks", ("--url", here.url)
    file.write_text(key_set([key]))
    assert run_tidegate("link", "trust", "far", file, *to)[0] == f"events of far must be signed with {key.id}\n"
    assert here.call("GET", "/v1/links/far/keys") == {"name": "far", "keys": [key.jwk()]}
    assert f"events of far must be signed with {key.id}" in run_tidegate("link", "list", *to)[0]
    assert run_tidegate("link", "distrust", "far", *to)[0] == "events of far need no signature\n"
    assert "no keys of 'far' are pinned" in run_tidegate("link", "distrust", "far", *to)[1]
    file.write_text(key_set([key], with_private=True))
    assert "expected a public key, and this one is private" in run_tidegate("link", "trust", "far", file, *to)[1]
    for command in (("trust", "pinned", file), ("distrust", "pinned")):
        file.write_text(key_set([key]))
        problem = run_tidegate("link", *command, *to)[1]
        assert "the keys of 'pinned' are pinned in the profile: change them there" in problem
    missing = httpx.get(f"{here.url}/v1/links/pined/keys", timeout=30)
    assert (missing.status_code, missing.json()["detail"]) == (
        404,
        "no keys of 'pined' are pinned; did you mean 'pinned'?",
    )


def test_signing_keys_are_created_shown_and_rotated(tmp_path: Path) -> None:
    data = ("--data", tmp_path)
    assert "there is no key in" in run_tidegate("link", "key", "show", *data)[1]
    created = run_tidegate("link", "key", "create", *data)[0]
    assert created == run_tidegate("link", "key", "show", *data)[0]
    assert "has keys already" in run_tidegate("link", "key", "create", *data)[1]
    rotated = json.loads(run_tidegate("link", "key", "rotate", "--after", "1d", "--keep", "2d", *data)[0])["keys"]
    assert rotated[0]["exp"] - rotated[1]["nbf"] == 2 * 86_400
    assert rotated[0]["kid"] == json.loads(created)["keys"][0]["kid"]
    assert not any("d" in key for key in rotated)
    assert run_tidegate("link", "key", "rotate", "--after", "0s", "--keep", "0s", *data)[1] == ""
    problem = run_tidegate("link", "key", "rotate", "--after", "soon", *data)[1]
    assert problem == "--after: expected a length of time such as 7d or 12h, not 'soon'"


@pytest.mark.parametrize(
    ("links", "problem"),
    [
        ("[]", "links: expected a map with signing_key, origins, not []"),
        ("{signingkey: 'file:x'}", "links: unknown key 'signingkey'; did you mean 'signing_key'?"),
        ("{origins: [city]}", "links.origins: expected files by broker, not ['city']"),
        ("{origins: {city: 'env:KEY'}}", "links.origins.city: expected file:PATH, not an environment variable"),
        ("{signing_key: 'env:KEY'}", "links.signing_key: expected file:PATH, not an environment variable"),
    ],
)
def test_profile_with_invalid_links_is_refused(tmp_path: Path, links: str, problem: str) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(f"links: {links}\n")
    with pytest.raises(EnvironmentProblem) as error:
        load_profile(str(path))
    assert problem in str(error.value)


def test_key_files_are_relative_to_the_profile(tmp_path: Path) -> None:
    path, key = tmp_path / "profile.yaml", new_key()
    path.write_text("links: {signing_key: 'file:own.jwks', origins: {city: 'file:city.jwks'}}\n")
    links = load_profile(str(path)).links
    assert links.signing_keys == tmp_path / "own.jwks"
    with pytest.raises(EnvironmentProblem, match=r"links\.origins\.city: can't read"):
        links.pinned()
    (tmp_path / "city.jwks").write_text(key_set([key]))
    assert [pinned.id for pinned in links.pinned()["city"]] == [key.id]
