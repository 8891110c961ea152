"""`tidegate link key`, `trust` and `distrust`: the signing keys of this broker, and the pinned keys of others."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tidegate.cli.input import gateway_client, options
from tidegate.cli.profile import EMBEDDED
from tidegate.cli.profile.secret_files import read_secret_file
from tidegate.errors import EnvironmentProblem
from tidegate.model import units

app = typer.Typer(
    help="The keys that this broker signs its events and offers with.", no_args_is_help=True, add_completion=False
)

Origin = Annotated[str, typer.Argument(help="The name of the broker that signs the events.")]


@app.command("create")
def create(data: options.Data = options.DATA, profile: options.Profile = EMBEDDED) -> None:
    """Create the first key that signs this broker's events and offers. Prints the public key, for others to pin."""
    from tidegate.federation.link.keys import create_key_file, key_set

    key = create_key_file(options.home(data, profile).signing_keys)
    typer.echo(key_set([key]), nl=False)


@app.command("rotate")
def rotate(
    after: Annotated[str, typer.Option(help="When the new key starts to sign; pin it at other brokers before.")] = "7d",
    keep: Annotated[str, typer.Option(help="How long the old keys are accepted after that.")] = "30d",
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
) -> None:
    """Add a key that replaces the old one later. Prints all public keys, for others to pin before that."""
    from tidegate.federation.link.keys import key_set, read_key_file, rotate_key_file

    path = options.home(data, profile).signing_keys
    rotate_key_file(path, time.time(), _seconds(after, "--after"), _seconds(keep, "--keep"))
    typer.echo(key_set(read_key_file(path)), nl=False)


@app.command("show")
def show(data: options.Data = options.DATA, profile: options.Profile = EMBEDDED) -> None:
    """Print the public keys as a JWK set, for others to pin with `tidegate link trust`."""
    from tidegate.federation.link.keys import key_set, read_key_file

    typer.echo(key_set(read_key_file(options.home(data, profile).signing_keys)), nl=False)


def trust(
    origin: Origin,
    keys: Annotated[
        str, typer.Argument(metavar="FILE", help="The broker's public keys, a JWK set; - for standard input.")
    ],
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
) -> None:
    """Pin a broker's public keys: its events are refused on every link unless one of these keys has signed them."""
    with gateway_client.connect(url, key) as client:
        pinned = client.trust_origin(origin, read_secret_file(keys, "FILE"))
    key_ids = ", ".join(public_key["kid"] for public_key in pinned["keys"])
    typer.echo(f"events of {origin} must be signed with {key_ids}")


def distrust(origin: Origin, url: options.Gateway = options.GATEWAY, key: options.Key = None) -> None:
    """Remove the pinned keys of a broker: its events no longer need a signature."""
    with gateway_client.connect(url, key) as client:
        client.distrust_origin(origin)
    typer.echo(f"events of {origin} need no signature")


def _seconds(text: str, option: str) -> float:
    duration_s = units.seconds(text)
    if duration_s is None or duration_s < 0:
        raise EnvironmentProblem(f"{option}: expected a length of time such as 7d or 12h, not {text!r}")
    return duration_s
