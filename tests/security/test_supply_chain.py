"""The container's packages: hashes, an SBOM, and an audit that fails without data."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LISTS = [ROOT / "deploy" / name for name in ("requirements.txt", "build-requirements.txt")]
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text()


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by package."""
    found = {}
    for entry in re.split(r"\n(?=\S)", path.read_text()):
        if match := re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", entry):
            found[canonical(match[1])] = match[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
    return found


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_every_package_of_the_container_has_hashes_and_the_tested_version(path: Path) -> None:
    pinned = dict(re.findall(r"^([^#\s=]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    tested = {canonical(name): version for name, version in pinned.items()}
    found = entries(path)
    assert len(found) > 20
    for name, (version, hashes) in found.items():
        assert hashes, f"{name} has no hash: run make lock"
        assert tested.get(name, version) == version, f"{name} is not at the tested version: run make lock"


def test_container_has_every_package_of_its_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = entries(LISTS[0])
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for extra in ("arrow", "matching", "registry", "client", "embedding", "kafka", "mqtt", "postgres"):
        needed += extras[extra]
    needed += extras["server"] + extras["spark"] + extras["tracing"]
    names = [canonical(re.split(r"[\[<>=]", each)[0]) for each in needed]
    assert [name for name in names if name not in found and name != "tidegate"] == [], "run make lock"


def test_nothing_is_installed_into_the_container_without_a_hash() -> None:
    text = CONTAINER.replace("\\\n", " ")
    installs = re.findall(r"pip install ([^&\n]*)", text)
    assert len(installs) == 3
    for options in installs:
        assert "--require-hashes -r deploy/" in options or ("--no-index" in options and "--no-deps" in options), options


# The audit ------------------------------------------------------------------------------


def entry(**affected: Any) -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": "Certifi"}
    return {
        "id": "PYSEC-0000-1",
        "aliases": ["CVE-0000-1"],
        "modified": "2026-01-02T00:00:00Z",
        "published": "2026-01-01T00:00:00Z",
        "summary": "bad",
        "affected": [{"package": package, **affected}],
    }


def events(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{kind: version} for kind, version in pairs]}]}


def audited(folder: Path, *entries_: dict[str, Any], more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Audit one package by a database of these entries."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"certifi==2026.1.1 --hash=sha256:{'0' * 64}\n")
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), "--requirements", str(requirements)]
    if entries_:
        with zipfile.ZipFile(folder / "all.zip", "w") as archive:
            for n, each in enumerate(entries_):
                archive.writestr(f"{n}.json", json.dumps(each))
        command += ["--database", str(folder / "all.zip")]
    return subprocess.run([*command, *more], capture_output=True, text=True, check=False)


@pytest.mark.processes
def test_audit_by_a_stored_database_finds_what_it_names(tmp_path: Path) -> None:
    ended = audited(tmp_path, entry(**events(("introduced", "0"), ("fixed", "2026.2.2"))))
    assert ended.returncode == 1, ended.stderr
    assert "certifi 2026.1.1: PYSEC-0000-1 CVE-0000-1, fixed in 2026.2.2" in ended.stdout
    assert "newest entry of 2026-01-02" in ended.stdout


@pytest.mark.processes
def test_audit_by_a_stored_database_passes_where_nothing_fits(tmp_path: Path) -> None:
    ended = audited(tmp_path, entry(**events(("introduced", "0"), ("fixed", "2025.1"))))
    assert ended.returncode == 0, ended.stderr
    assert "1 packages audited, 0 known vulnerabilities" in ended.stdout


@pytest.mark.processes
def test_audit_fails_where_the_database_cannot_be_reached(tmp_path: Path) -> None:
    nowhere = ("--", "--vulnerability-service", "osv", "--osv-url", "http://127.0.0.1:1/v1/query")
    ended = audited(tmp_path, more=nowhere)
    assert ended.returncode == 3
    assert "error: nothing was audited: the database can't be reached" in ended.stderr
    assert "make audit DATABASE=all.zip" in ended.stderr


@pytest.mark.processes
def test_audit_names_a_database_that_is_none(tmp_path: Path) -> None:
    other = {**entry(), "affected": [{"package": {"ecosystem": "npm", "name": "certifi"}}]}
    assert "it has no entry on any package" in audited(tmp_path, other).stderr
    (tmp_path / "text").write_text("no zip")
    ended = audited(tmp_path, more=("--database", str(tmp_path / "text")))
    assert ended.returncode == 1
    assert "expected an OSV export of PyPI (all.zip)" in ended.stderr


@pytest.mark.parametrize(
    ("affected", "version", "is_affected"),
    [
        ({"versions": ["1.0", "1.1"]}, "1.1.0", True),
        ({"versions": ["1.0", "not a version"]}, "1.2", False),
        (events(("introduced", "1.0"), ("fixed", "1.5")), "0.9", False),
        (events(("introduced", "1.0"), ("fixed", "1.5")), "1.4.9", True),
        (events(("introduced", "1.0"), ("fixed", "1.5")), "1.5", False),
        (events(("introduced", "1.0"), ("last_affected", "1.5")), "1.5", True),
        (events(("introduced", "1.0"), ("last_affected", "1.5")), "1.5.1", False),
        (events(("fixed", "1.5"), ("introduced", "0"), ("introduced", "2.0"), ("fixed", "2.1")), "2.0.3", True),
        (events(("fixed", "1.5"), ("introduced", "0"), ("introduced", "2.0"), ("fixed", "2.1")), "1.9", False),
        (events(("introduced", "0")), "0.0.1.dev1", True),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, "1.0", False),
    ],
)
def test_versions_are_matched_by_the_rules_of_osv(affected: dict[str, Any], version: str, is_affected: bool) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "audit.py"))
    assert script["is_affected"](entry(**affected), "certifi", version) is is_affected


# The SBOM -------------------------------------------------------------------------------


@pytest.mark.processes
def test_sbom_has_packages_and_jars_with_checksums_and_no_tools(tmp_path: Path) -> None:
    out = tmp_path / "tidegate.cdx.json"
    command = [sys.executable, str(ROOT / "scripts" / "sbom.py"), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    bom = json.loads(out.read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    components = {each["name"]: each for each in bom["components"]}
    assert components["fastapi"]["purl"].startswith("pkg:pypi/fastapi@")
    assert not {"pytest", "ruff", "uv", "tidegate"} & components.keys(), "tools are no part of what runs"
    (checksum,) = re.findall(
        r"^(\S+)  kafka-clients", (ROOT / "src/tidegate/pipelines/connector/jars.sha256").read_text(), re.MULTILINE
    )
    assert components["kafka-clients"]["hashes"] == [{"alg": "SHA-256", "content": checksum}]
    assert components["spark-core_2.13"]["purl"].startswith("pkg:maven/org.apache.spark/spark-core_2.13@")
    refs = {each["bom-ref"] for each in bom["components"]} | {"root-component"}
    depends = {each["ref"]: each.get("dependsOn", []) for each in bom["dependencies"]}
    assert all(ref in refs for ref, wanted in depends.items() for ref in (ref, *wanted))
    assert str(ROOT) not in out.read_text()
    jars = [each for each in bom["components"] if each["bom-ref"].startswith("jar:")]
    assert len(jars) > 200
    assert all(len(each["hashes"][0]["content"]) == 64 for each in jars)
