"""Options that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.home import Home
from tidegate.cli.profile import EMBEDDED, load_profile

Data = Annotated[str, typer.Option("--data", help="The folder with the log and the registry.")]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Service files, YAML; they share their names.")]
Profile = Annotated[
    str, typer.Option("--profile", help="What it runs on: embedded, or a YAML file; see docs/cluster.md.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]

DATA = "tidegate-data"


def home(data: str, profile: str = EMBEDDED) -> Home:
    """The folder of a `--data` with its profile; modules beside the caller can be named in service files."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return Home(Path(data), load_profile(profile))
