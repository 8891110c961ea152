"""`tidegate quarantine`: list the events that a service has refused, and replay them."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidegate.cli.input import gateway_client, options
from tidegate.errors import EnvironmentProblem

app = typer.Typer(help="Refused events of a service: list and replay them.", no_args_is_help=True, add_completion=False)

Service = Annotated[str, typer.Argument(help="The service.")]
Rule = Annotated[
    str | None, typer.Option(help="Only events whose attribute of this name was invalid; event: the event as a whole.")
]
Since = Annotated[str | None, typer.Option("--from", help="Only events refused since a time, or since 10m ago.")]


@app.command("list")
def list_(
    service: Service,
    rule: Rule = None,
    since: Since = None,
    cursor: Annotated[str | None, typer.Option(help="Continue after the page that printed this cursor.")] = None,
    limit: Annotated[int, typer.Option("--max", min=1, max=1_000, help="The maximum number of events.")] = 100,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the events that a service has refused, with the reasons, oldest first."""
    with gateway_client.connect(url or options.GATEWAY, key) as client:
        page = client.quarantine(service, rule=rule, since=since, cursor=cursor, most=limit)
    if as_json:
        typer.echo(json.dumps(page, indent=2))
        return
    for event in page["quarantined"]:
        replayed = f" (sent again at {event['replayed']['at']})" if event["replayed"] else ""
        typer.echo(f"{event['id']}  {event['reason']}{replayed}")
    if page["more"]:
        typer.echo(f"there is more: --cursor {page['cursor']}", err=True)


@app.command("replay")
def replay(
    service: Service,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="The ids that the list shows.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All events that were not sent again yet, instead of ids.")
    ] = False,
    rule: Rule = None,
    since: Since = None,
    patch: Annotated[
        str | None, typer.Option(help="The corrected attributes, a JSON object: '{\"speed\": 0}'.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Send the valid events, instead of all or nothing.")
    ] = False,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Send refused events of a service again, unchanged or corrected."""
    corrected = _patch(patch)
    if bool(ids) == all_:
        raise EnvironmentProblem("expected ids, as `tidegate quarantine list` shows them, or --all")
    if ids and (rule or since):
        raise EnvironmentProblem("--rule and --from select events of --all: expected no ids with them")
    results: list[dict[str, Any]] = []
    with gateway_client.connect(url or options.GATEWAY, key) as client:
        request: dict[str, Any] = {"events": [{"id": id_, "patch": corrected} for id_ in ids or ()]}
        selection = {name: value for name, value in (("rule", rule), ("from", since)) if value is not None}
        while True:
            if all_:
                request = {"all": selection, "patch": corrected}
            answer = client.replay(service, request, mode="partial" if partial else "all")
            results += answer["results"]
            if not answer.get("more"):
                break
            selection = {name: value for name, value in selection.items() if name != "from"}
            selection["cursor"] = answer["cursor"]
    if as_json:
        typer.echo(json.dumps(results, indent=2))
        return
    for result in results:
        for error in result.get("errors", ()):
            typer.echo(f"{result['id']}: {error['pointer']}: {error['detail']}", err=True)
    count = {kind: sum(result["result"] == kind for result in results) for kind in ("replayed", "already", "refused")}
    typer.echo(
        f"{count['replayed']:,} sent again"
        + (f", {count['already']:,} were already" if count["already"] else "")
        + (f", {count['refused']:,} can't be" if count["refused"] else "")
    )


def _patch(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        patch = json.loads(text)
    except ValueError:
        patch = None
    if not isinstance(patch, dict):
        raise EnvironmentProblem(f"--patch: expected a JSON object such as '{{\"speed\": 0}}', not {text!r:.60}")
    return patch
