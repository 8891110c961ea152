"""Writes an SBOM (CycloneDX 1.6, JSON) of what a container of Tidegate runs: Python packages and jars, with checksums.

Packages are those of deploy/requirements.txt, as they are installed beside an interpreter; jars are pyspark's own and
those that Maven fetches. Needs `cyclonedx-bom` for the interpreter that runs it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "deploy" / "requirements.txt"
JARS = ROOT / "src" / "tidegate" / "pipelines" / "connector" / "jars.sha256"
VERSION = ROOT / "src" / "tidegate" / "__init__.py"
TOP = "root-component"
"""What cyclonedx-py calls the program itself."""


def main() -> None:
    """Write the SBOM, or print the problem and exit with 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environment")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "tidegate.cdx.json")
    chosen = parser.parse_args()
    bom = environment(chosen.python)
    missing = keep(bom, required(REQUIREMENTS.read_text()))
    if missing:
        sys.exit(f"error: not installed beside {chosen.python}: {', '.join(missing)}; run make setup, or make lock")
    add_jars(bom, spark_jars(chosen.python), fetched_jars())
    text = json.dumps(bom, indent=1, sort_keys=True)
    validate(text)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(text + "\n")
    print(f"{chosen.out}: {len(bom['components'])} components")


def environment(python: str) -> dict[str, Any]:
    """Return the packages that cyclonedx-py finds in an environment."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bom.json"
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(ROOT / "pyproject.toml")]
        subprocess.run(
            [*command, "--no-validate", "--output-reproducible", "--spec-version", "1.6", "-o", str(out), python],
            check=True,
        )
        found: dict[str, Any] = json.loads(out.read_text())
    found["metadata"]["component"]["version"] = re.search(r'__version__ = "(.+)"', VERSION.read_text())[1]  # type: ignore[index]
    return found


def canonical(name: str) -> str:
    """A package's name in the one form that equals all its spellings."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(text: str) -> set[str]:
    """Packages of a requirements file that this platform needs; those with a marker may be for another."""
    found = set()
    for line in text.splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)==(\S+)(.*)", line)
        if match is not None:
            found.add(canonical(match[1]) + ("?" if ";" in match[3] else ""))
    return found


def keep(bom: dict[str, Any], names: set[str]) -> list[str]:
    """Remove all components but the named ones; return those that are not there though they have no marker."""
    optional = {name.rstrip("?") for name in names}
    bom["components"] = [each for each in bom["components"] if canonical(each["name"]) in optional]
    kept = {each["bom-ref"] for each in bom["components"]} | {TOP}
    bom["dependencies"] = [
        {**each, **({"dependsOn": [ref for ref in each["dependsOn"] if ref in kept]} if "dependsOn" in each else {})}
        for each in bom["dependencies"]
        if each["ref"] in kept
    ]
    there = {canonical(each["name"]) for each in bom["components"]}
    return sorted(name for name in names if not name.endswith("?") and name not in there)


def spark_jars(python: str) -> list[dict[str, Any]]:
    """The jars inside pyspark, each with its SHA-256."""
    where = "import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent / 'jars')"
    folder = Path(subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip())
    return [
        component(jar.name, hashlib.sha256(jar.read_bytes()).hexdigest(), coordinates(jar))
        for jar in sorted(folder.glob("*.jar"))
    ]


def fetched_jars() -> list[dict[str, Any]]:
    """The jars that Maven fetches, with the SHA-256 that is pinned."""
    pinned = (line.split() for line in JARS.read_text().splitlines())
    return [component(name, checksum, None) for checksum, name in pinned]


def coordinates(jar: Path) -> tuple[str, str, str] | None:
    """Group, name and version, as the jar itself says them; None: it does not. Others may be shaded into it."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"META-INF/maven/.+/pom\.properties", name)]
        texts = [archive.read(name).decode("utf-8", "replace") for name in names]
    for text in texts:
        said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
        group, name, version = (said.get(key, "").strip() for key in ("groupId", "artifactId", "version"))
        if group and jar.name == f"{name}-{version}.jar":
            return group, name, version
    return None


def component(file: str, checksum: str, found: tuple[str, str, str] | None) -> dict[str, Any]:
    """A jar as CycloneDX describes it."""
    name, version = re.fullmatch(r"(.+?)-(\d.*)\.jar", file).groups() if re.search(r"-\d", file) else (file, "")  # type: ignore[union-attr]
    made: dict[str, Any] = {"type": "library", "bom-ref": f"jar:{checksum[:16]}:{file}", "name": name}
    made |= {"version": version} if version else {}
    made |= {"hashes": [{"alg": "SHA-256", "content": checksum}]}
    made |= {"properties": [{"name": "tidegate:file", "value": file}]}
    if found is not None:
        group, name, version = found
        made |= {"group": group, "name": name, "version": version, "purl": f"pkg:maven/{group}/{name}@{version}"}
    return made


def add_jars(bom: dict[str, Any], spark: list[dict[str, Any]], fetched: list[dict[str, Any]]) -> None:
    """Add jars: those of pyspark belong to it, the others to the program."""
    known = {each["bom-ref"] for each in spark}
    fetched = [each for each in fetched if each["bom-ref"] not in known]
    bom["components"] += spark + fetched
    pyspark = next(each["bom-ref"] for each in bom["components"] if each["name"] == "pyspark")
    depends = {each["ref"]: each for each in bom["dependencies"]}
    for ref, jars in ((pyspark, spark), (TOP, fetched)):
        entry = depends.get(ref)
        if entry is None:
            entry = {"ref": ref}
            bom["dependencies"].append(entry)
        entry["dependsOn"] = sorted({*entry.get("dependsOn", []), *(each["bom-ref"] for each in jars)})


def validate(text: str) -> None:
    """End where the text is not what CycloneDX's schema says."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        sys.exit(f"error: the SBOM is not CycloneDX 1.6: {problem}")


if __name__ == "__main__":
    main()
