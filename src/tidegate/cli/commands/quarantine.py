"""`tidegate quarantine`: what a service has refused, and sending it again."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidegate.cli.input import gateway_client, options
from tidegate.errors import EnvironmentProblem

app = typer.Typer(help="What a service has refused: read, and sent again.", no_args_is_help=True, add_completion=False)

URL = "http://127.0.0.1:8080"

Service = Annotated[str, typer.Argument(help="The service.")]
Rule = Annotated[str | None, typer.Option(help="Just where this attribute was wrong; event: all of it.")]
Since = Annotated[str | None, typer.Option("--from", help="Just what was refused since: a moment, or 10m.")]


@app.command("list")
def list_(
    service: Service,
    rule: Rule = None,
    since: Since = None,
    cursor: Annotated[str | None, typer.Option(help="Go on behind a page.")] = None,
    most: Annotated[int, typer.Option("--max", min=1, max=1_000, help="Events at most.")] = 100,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what a service has refused, and why, the oldest first."""
    with gateway_client.connect(url or URL, key) as client:
        found = client.quarantine(service, rule=rule, since=since, cursor=cursor, most=most)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for each in found["quarantined"]:
        again = f" (sent again at {each['replayed']['at']})" if each["replayed"] else ""
        typer.echo(f"{each['id']}  {each['reason']}{again}")
    if found["more"]:
        typer.echo(f"there is more: --cursor {found['cursor']}", err=True)


@app.command("replay")
def replay(
    service: Service,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="As the list shows them.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All that was not sent again yet, instead of ids.")] = False,
    rule: Rule = None,
    since: Since = None,
    patch: Annotated[str | None, typer.Option(help="What is corrected, as a JSON object: '{\"speed\": 0}'.")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Send all that fits, not all or nothing.")] = False,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Send what a service has refused again, as it was or corrected."""
    corrected = _patch(patch)
    if bool(ids) == all_:
        raise EnvironmentProblem("expected ids, as `tidegate quarantine list` shows them, or --all")
    if ids and (rule or since):
        raise EnvironmentProblem("--rule and --from choose among --all: expected no ids beside them")
    results: list[dict[str, Any]] = []
    with gateway_client.connect(url or URL, key) as client:
        said: dict[str, Any] = {"events": [{"id": each, "patch": corrected} for each in ids or ()]}
        chosen = {name: value for name, value in (("rule", rule), ("from", since)) if value is not None}
        while True:
            if all_:
                said = {"all": chosen, "patch": corrected}
            found = client.replay(service, said, mode="partial" if partial else "all")
            results += found["results"]
            if not found.get("more"):
                break
            chosen = {name: value for name, value in chosen.items() if name != "from"} | {"cursor": found["cursor"]}
    if as_json:
        typer.echo(json.dumps(results, indent=2))
        return
    for each in results:
        for error in each.get("errors", ()):
            typer.echo(f"{each['id']}: {error['pointer']}: {error['detail']}", err=True)
    count = {kind: sum(each["result"] == kind for each in results) for kind in ("replayed", "already", "refused")}
    typer.echo(
        f"{count['replayed']:,} sent again"
        + (f", {count['already']:,} were already" if count["already"] else "")
        + (f", {count['refused']:,} can't be" if count["refused"] else "")
    )


def _patch(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EnvironmentProblem(f"--patch: expected a JSON object such as '{{\"speed\": 0}}', not {text!r:.60}")
    return found
