"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.permissions import restrict_new_files
from tidegate.cli.profile import EMBEDDED, load_profile
from tidegate.cli.profile.secret_files import read_secret_file
from tidegate.cli.profile.tls import Tls
from tidegate.errors import DefinitionError
from tidegate.services import Definitions
from tidegate.services.findings import Findings
from tidegate.services.trust import note_unlisted

Data = Annotated[str, typer.Option("--data", help="The folder with the log and the registry.")]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Service files, YAML; they share their names.")]
Profile = Annotated[
    str, typer.Option("--profile", help="What it runs on: embedded, or a YAML file; see docs/cluster.md.")
]
Semantics = Annotated[
    str | None,
    typer.Option(
        "--semantics",
        envvar="TIDEGATE_SEMANTICS",
        help="A semantic space, for filters with ~; else the profile's, or space/ in the folder.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]

Url = Annotated[
    str | None, typer.Option("--url", envvar="TIDEGATE_URL", help="A gateway, to be asked instead of a folder.")
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="TIDEGATE_KEY",
        help="The gateway's API key. Other users of this machine can see it: rather use --key-file or TIDEGATE_KEY.",
    ),
]

KeyFile = Annotated[
    str | None, typer.Option("--key-file", metavar="PATH", help="A file with the API key; - for standard input.")
]

Gateway = Annotated[str, typer.Option("--url", envvar="TIDEGATE_URL", help="The gateway.")]

DATA = "tidegate-data"
WIDTH = 250
"""Characters of a table's row: a terminal wraps it, and an id is never cut, nor in a pipe."""
GATEWAY = "http://127.0.0.1:8080"


def url_rather_than_data(context: typer.Context, url: str | None) -> str | None:
    """The gateway to ask; None: the folder is meant, as it was named and the gateway only by the environment."""

    def was_typed(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    return None if was_typed("data") and not was_typed("url") else url


def trusted(definitions: Definitions, home: Home) -> Definitions:
    """Definitions of the operator's files, if the profile lists the functions and connections that they name."""
    findings = Findings(definitions.places)
    note_unlisted(definitions, home.resources(), findings)
    if findings.problems:
        raise DefinitionError(findings.problems)
    return definitions


def home(data: str, profile: str = EMBEDDED, tls: Callable[[Tls], Tls] = lambda found: found) -> Home:
    """The folder of a `--data` with its profile; modules beside the caller can be named in service files.

    `tls` changes what the profile says of TLS.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = load_profile(profile)
    restrict_new_files(shared=found.shared)
    return Home(Path(data), replace(found, tls=tls(found.tls)))


def add_key_file(app: typer.Typer) -> None:
    """Give `--key-file` to every command of an app that takes `--key`."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_key_file(group.typer_instance)
    for command in app.registered_commands:
        if command.callback is not None and "key" in inspect.signature(command.callback).parameters:
            command.callback = _with_key_file(command.callback)


def _with_key_file(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(*args: Any, key_file: str | None = None, **given: Any) -> Any:
        if key_file is not None:
            given["key"] = read_secret_file(key_file, "--key-file").strip()
        return command(*args, **given)

    signature = inspect.signature(command, eval_str=True)
    more = inspect.Parameter("key_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=KeyFile)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what typer reads
        parameters=[*signature.parameters.values(), more]
    )
    run.__annotations__ = {**inspect.get_annotations(command, eval_str=True), "key_file": KeyFile}
    return run
