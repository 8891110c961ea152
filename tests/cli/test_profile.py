"""Profiles: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.profile import Profile, load_profile
from tidegate.errors import EnvironmentProblem


def test_the_embedded_one_needs_no_file() -> None:
    assert load_profile("embedded") == Profile()


def test_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text(
        "master: spark://head:7077\nspark: {spark.cores.max: 8, spark.ui.enabled: true}\nlog: {kafka: 'head:9092'}\n"
    )
    expected = Profile("spark://head:7077", {"spark.cores.max": "8", "spark.ui.enabled": "true"}, "head:9092")
    assert load_profile(str(path)) == load_profile(str(path.with_suffix(""))) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "expected a map with master, spark, log, shared, registry, webhooks, not [1]"),
        ("mater: local", "unknown key 'mater'; did you mean 'master'?"),
        ("log: kafka", "log: expected files, or {kafka: 'host:9092'}, not 'kafka'"),
        ("master: 7", "master: expected text such as 'spark://host:7077', not 7"),
        ("spark: 7", "spark: expected settings by name, not 7"),
        ("shared: perhaps", "shared: expected true or false, not 'perhaps'"),
        ("master: spark://head:7077", "let the log be Kafka"),
        ("master: [", "expected a profile in YAML: line 1: "),
        ("webhooks: yes please", "webhooks: expected {allow_private: true or false}, not 'yes please'"),
        ("registry: mysql://me:hush@head/db", "registry: expected postgresql://user:password@host:port/database, or {"),
        ("registry: 'postgresql://[me:hush'", "registry: expected postgresql://user:password@host:port/database, or {"),
        ("registry: {url: 'postgresql://me@head/db', pasword: hush}", "registry: expected postgresql://"),
        (
            "registry: {url: 'postgresql://me@head/db', password: hush}",
            "registry: password: expected {env: NAME} or {file: PATH}",
        ),
        (
            "registry: {url: 'postgresql://me:hush@head/db', password: {env: HUSH}}",
            "registry: beside password expected a url with a user and without a password",
        ),
        ("registry: postgresql://me:hush@head/db\nmaster: [", "expected a profile in YAML: line 2: "),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(EnvironmentProblem) as caught:
        load_profile(str(path))
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_registry_in_postgresql_and_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.yaml"

    def address(registry: str) -> str:
        path.write_text(f"registry: {registry}\nwebhooks: {{allow_private: true}}\n")
        profile = load_profile(str(path))
        assert profile.allow_private_webhooks
        assert profile.database is not None
        assert "hush" not in repr(profile)
        return profile.database.address()

    whole = "postgresql://me:hush%25%2F%40%3A@head:5432/db?sslmode=require"
    assert address(whole) == whole
    monkeypatch.setenv("THE_PASSWORD", "hush%/@:")
    (tmp_path / "password").write_text("hush%/@:\n")
    url = "postgresql://me@head:5432/db?sslmode=require"
    assert address(f"{{url: '{url}', password: {{env: THE_PASSWORD}}}}") == whole
    assert address(f"{{url: '{url}', password: {{file: password}}}}") == whole
    with pytest.raises(EnvironmentProblem, match=r"^the registry's password: the environment has no 'NONE'$"):
        address(f"{{url: '{url}', password: {{env: NONE}}}}")
    with pytest.raises(EnvironmentProblem, match=r"^the registry's password: can't read .*none': No such file"):
        address(f"{{url: '{url}', password: {{file: none}}}}")


def test_files_on_a_cluster_are_taken_where_the_folder_is_shared() -> None:
    assert Profile("spark://head:7077", shared=True).is_local is False


def test_an_unknown_name() -> None:
    with pytest.raises(EnvironmentProblem, match=r"no profile .cluster.; expected .embedded., or the path"):
        load_profile("cluster")
