"""`tidegate semantics`: spaces of meaning, made and looked into."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from tidegate.cli.input import options
from tidegate.errors import EnvironmentProblem, MissingDependency

if TYPE_CHECKING:
    from tidegate.semantics import Space
    from tidegate.semantics.corpora import Corpus
    from tidegate.semantics.storage import Parameters

app = typer.Typer(help="Spaces of meaning: make them, look into them.", no_args_is_help=True, add_completion=False)

_EVERY = 50
"""Documents between two looks at how far it has come."""
_SMALL = 1 << 20
"""Bytes of a corpus of which nothing is left out: somebody wrote it for what they look for."""
_LARGE = 32 << 20
"""Bytes of a corpus that are worth starting Spark for, which takes some ten seconds."""


@app.command("build")
def build(
    corpus: Annotated[
        str, typer.Argument(help="A folder of .txt or .parquet, a Wikipedia dump (.xml.bz2, .xml), or .parquet.")
    ],
    out: Annotated[str, typer.Option("--out", "-o", help="The folder to make.")],
    least_words: Annotated[
        int | None,
        typer.Option(
            min=1, help="Leave out documents with fewer words that count.", show_default="100; 1 of a corpus under 1 MB"
        ),
    ] = None,
    least_documents: Annotated[
        int | None,
        typer.Option(min=1, help="Leave out terms in fewer documents.", show_default="3; 1 of a corpus under 1 MB"),
    ] = None,
    on_spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="Count on Spark, or in this process.",
            show_default="Spark where it is installed and the corpus has 32 MB or more",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a space of a corpus: every term by the documents it occurs in. A build that was stopped goes on."""
    from tidegate.semantics import Space
    from tidegate.semantics.corpora import open_corpus
    from tidegate.semantics.storage import Parameters

    found = open_corpus(corpus)
    size = sum(each.stat().st_size for each in found.files)
    usual = Parameters(1, 1) if size < _SMALL else Parameters()
    parameters = Parameters(least_words or usual.least_words, least_documents or usual.least_documents)
    if on_spark is None:
        on_spark = size >= _LARGE and _spark_runs_here()
    if on_spark:
        _build_on_spark(corpus, out, parameters)
    else:
        _build(found, out, parameters)
    made = Space.open(out)
    typer.echo(json.dumps(_described(made), indent=2, ensure_ascii=False) if as_json else _told(made))


def _spark_runs_here() -> bool:
    if find_spec("pyspark") is None:
        return False
    from tidegate.pipelines.session import need_java

    try:
        need_java()
    except EnvironmentProblem:
        return False
    return True


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, moved by the part that is done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("counting", total=1.0)
        yield lambda done: progress.update(task, completed=done, description="counting" if done < 1 else "merging")


def _build(corpus: Corpus, out: str, parameters: Parameters) -> None:
    from tidegate.semantics.builder import build as build_space

    with _progress() as told:

        def counted(number: int) -> None:
            if number % _EVERY == 0 or corpus.done >= 1:
                told(corpus.done)

        build_space(corpus, out, parameters=parameters, counted=counted)


def _build_on_spark(corpus: str, out: str, parameters: Parameters) -> None:
    try:
        from tidegate.pipelines.semantics import build as build_space
        from tidegate.pipelines.semantics import session
    except ModuleNotFoundError as exc:
        raise MissingDependency(str(exc.name), "spark") from exc
    with _progress() as told:
        spark = session()
        try:
            build_space(spark, corpus, out, parameters=parameters, counted=told)
        finally:
            spark.stop()


def _described(space: Space) -> dict[str, Any]:
    return {
        "space": str(space.folder),
        "terms": len(space.terms),
        "postings": len(space.documents),
        "corpus": asdict(space.corpus),
        "parameters": asdict(space.parameters),
    }


def _told(space: Space) -> str:
    corpus = space.corpus
    return (
        f"{space.folder}: {len(space.terms):,} terms over {corpus.documents:,} documents of {corpus.name} "
        f"({corpus.words:,} words; too short and left out: {corpus.left_out:,})"
    )


@app.command("inspect")
def inspect(
    term: Annotated[str, typer.Argument(help="A term, of one word or more.")],
    space: Annotated[
        str, typer.Option("--space", "--semantics", envvar="TIDEGATE_SEMANTICS", help="The folder of the space.")
    ] = "space",
    theme: Annotated[list[str] | None, typer.Option(help="A theme tag; may be given again.")] = None,
    to: Annotated[list[str] | None, typer.Option(help="A term to relate it to; may be given again.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many concepts and terms.")] = 10,
    as_json: options.AsJson = False,
) -> None:
    """Show what a term means: the documents that say most of it, and the terms nearest to it."""
    from tidegate.semantics.default import default_semantics
    from tidegate.semantics.looking import look

    found = look(default_semantics(space), term, theme or [], to or [], count=count)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    lines = [f"{term} = {' '.join(found['words']) or 'nothing that counts'}"]
    if theme:
        lines.append(f"in {', '.join(theme)}: {found['basis']:,} of {found['documents']:,} documents")
    if found["unknown"]:
        lines.append(f"unknown here: {', '.join(found['unknown'])}")
    if found["related"]:
        lines += ["", "related"]
        for each in found["related"]:
            by = ", ".join(concept["concept"] for concept in each["concepts"])
            lines.append(f"  {each['relatedness']:.3f}  {each['to']}{f'  by {by}' if by else ''}")
    for title, name, figure in (("concepts", "concept", "weight"), ("nearest", "term", "relatedness")):
        if found[title]:
            lines += ["", title, *(f"  {each[figure]:.3f}  {each[name]}" for each in found[title])]
    typer.echo("\n".join(lines))
