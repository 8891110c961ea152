"""The entry point `tidegate`: registers the commands and turns errors into exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidegate import __version__
from tidegate.cli.commands import (
    apply,
    backtest,
    backup,
    bench,
    check,
    discover,
    doctor,
    explain,
    gateway,
    init,
    keys,
    link,
    plan,
    publish,
    quarantine,
    secrets,
    semantics,
    services,
    state,
    subscribe,
    subscriptions,
    top,
    up,
    validate,
)
from tidegate.cli.demo import command as demo
from tidegate.cli.input.gateway_client import add_tls_options
from tidegate.cli.input.options import add_key_file
from tidegate.errors import TidegateError

app = typer.Typer(
    name="tidegate",
    help="Turn sensor streams into services.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("explain")(explain.explain)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)
app.command("init")(init.init)
app.command("validate")(validate.validate)
app.command("plan")(plan.plan)
app.command("up")(up.up)
app.command("gateway")(gateway.gateway)
app.command("apply")(apply.apply)
app.add_typer(keys.app, name="keys")
app.add_typer(link.app, name="link")
app.add_typer(secrets.app, name="secrets")
app.add_typer(state.app, name="state")
app.command("services")(services.services)
app.command("discover")(discover.discover)
app.command("top")(top.top)
app.command("publish")(publish.publish)
app.add_typer(quarantine.app, name="quarantine")
app.command("subscribe")(subscribe.subscribe)
app.add_typer(subscriptions.app, name="subscriptions")
app.command("backtest")(backtest.backtest)
app.command("check")(check.check)
app.command("repair")(check.repair)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.add_typer(semantics.app, name="semantics")
add_tls_options(app)
add_key_file(app)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Turn sensor streams into services."""


def run() -> None:
    """Run the command line. A `TidegateError` is printed as one message, without a traceback, with exit code 2."""
    try:
        app()
    except TidegateError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of the pipe has exited: `tidegate ... | head`
        sys.stderr.close()
        sys.exit(141)
