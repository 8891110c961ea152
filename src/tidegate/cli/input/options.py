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
from tidegate.cli.profile.tls import TlsProfile
from tidegate.errors import DefinitionError
from tidegate.services import Definitions
from tidegate.services.findings import Findings
from tidegate.services.trust import note_unlisted

Data = Annotated[str, typer.Option("--data", help="The data folder, with the log and the registry.")]
Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Service files, YAML; they may refer to each other.")
]
Profile = Annotated[str, typer.Option("--profile", help="The profile: embedded, or a YAML file; see docs/cluster.md.")]
Semantics = Annotated[
    str | None,
    typer.Option(
        "--semantics",
        envvar="TIDEGATE_SEMANTICS",
        help="The folder of a semantic space, for filters with ~; default: the profile's, or space/ in the folder.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Force = Annotated[bool, typer.Option(help="Apply changes that break subscribers, too.")]
Backfill = Annotated[bool, typer.Option(help="Run new and changed services over the retained history first.")]

Url = Annotated[
    str | None, typer.Option("--url", envvar="TIDEGATE_URL", help="The URL of a gateway to use instead of a folder.")
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="TIDEGATE_KEY",
        help="The API key. Other users of this machine can see it: use --key-file or TIDEGATE_KEY instead.",
    ),
]

KeyFile = Annotated[
    str | None, typer.Option("--key-file", metavar="PATH", help="A file with the API key; - for standard input.")
]

Gateway = Annotated[str, typer.Option("--url", envvar="TIDEGATE_URL", help="The URL of the gateway.")]

DATA = "tidegate-data"
WIDTH = 250
"""Width of a printed table: rich would cut ids at the width of the terminal, or at 80 characters in a pipe."""
GATEWAY = "http://127.0.0.1:8080"


def url_rather_than_data(context: typer.Context, url: str | None) -> str | None:
    """Return the URL of the gateway to use, or None to use the data folder.

    A `--data` on the command line takes precedence over a `TIDEGATE_URL` in the environment.
    """

    def was_typed(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    return None if was_typed("data") and not was_typed("url") else url


def trusted(definitions: Definitions, home: Home) -> Definitions:
    """Return definitions from the operator's own files.

    Raises a `DefinitionError` if they name functions or connections that the profile does not list.
    """
    findings = Findings(definitions.places)
    note_unlisted(definitions, home.resources(), findings)
    if findings.problems:
        raise DefinitionError(findings.problems)
    return definitions


def home(
    data: str, profile: str = EMBEDDED, override_tls: Callable[[TlsProfile], TlsProfile] = lambda tls: tls
) -> Home:
    """Load the profile and return the data folder with it. `override_tls` changes the profile's TLS settings.

    Sets the umask of this process, so that new files are private, and puts the working directory on `sys.path`, so that
    service files can name functions of modules there.
    """
    working_directory = str(Path.cwd())
    if working_directory not in sys.path:
        sys.path.insert(0, working_directory)
    loaded = load_profile(profile)
    restrict_new_files(shared=loaded.shared)
    return Home(Path(data), replace(loaded, tls=override_tls(loaded.tls)))


def add_key_file(app: typer.Typer) -> None:
    """Add `--key-file` to every command of an app that takes `--key`, also in its groups."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_key_file(group.typer_instance)
    for command in app.registered_commands:
        if command.callback is not None and "key" in inspect.signature(command.callback).parameters:
            command.callback = _with_key_file(command.callback)


def _with_key_file(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(*args: Any, key_file: str | None = None, **arguments: Any) -> Any:
        if key_file is not None:
            arguments["key"] = read_secret_file(key_file, "--key-file").strip()
        return command(*args, **arguments)

    signature = inspect.signature(command, eval_str=True)
    added = inspect.Parameter("key_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=KeyFile)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # typer reads it
        parameters=[*signature.parameters.values(), added]
    )
    run.__annotations__ = {**inspect.get_annotations(command, eval_str=True), "key_file": KeyFile}
    return run
