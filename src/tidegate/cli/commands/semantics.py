"""`tidegate semantics`: build and inspect semantic spaces."""

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

app = typer.Typer(help="Semantic spaces: build and inspect them.", no_args_is_help=True, add_completion=False)

_PROGRESS_INTERVAL = 50
"""Documents between two updates of the progress bar."""
_SMALL_CORPUS_BYTES = 1 << 20
"""A smaller corpus was written for its purpose: no document or term is left out."""
_LARGE_CORPUS_BYTES = 32 << 20
"""From this size on the corpus is counted on Spark, which takes some ten seconds to start."""


@app.command("build")
def build(
    corpus: Annotated[
        str, typer.Argument(help="A folder of .txt or .parquet, a Wikipedia dump (.xml.bz2, .xml), or .parquet.")
    ],
    out: Annotated[str, typer.Option("--out", "-o", help="The folder to create.")],
    least_words: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Leave out documents with fewer words, without stop words.",
            show_default="100; 1 for a corpus under 1 MB",
        ),
    ] = None,
    least_documents: Annotated[
        int | None,
        typer.Option(min=1, help="Leave out terms in fewer documents.", show_default="3; 1 for a corpus under 1 MB"),
    ] = None,
    on_spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="Count on Spark, or in this process.",
            show_default="Spark if it is installed and the corpus has 32 MB or more",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Build a space from a corpus: an index of terms by the documents they occur in. Resumes a stopped build."""
    from tidegate.semantics import Space
    from tidegate.semantics.corpora import open_corpus
    from tidegate.semantics.storage import Parameters

    opened = open_corpus(corpus)
    size_bytes = sum(file.stat().st_size for file in opened.files)
    defaults = Parameters(1, 1) if size_bytes < _SMALL_CORPUS_BYTES else Parameters()
    parameters = Parameters(least_words or defaults.least_words, least_documents or defaults.least_documents)
    if on_spark is None:
        on_spark = size_bytes >= _LARGE_CORPUS_BYTES and _spark_runs_here()
    if on_spark:
        _build_on_spark(corpus, out, parameters)
    else:
        _build(opened, out, parameters)
    space = Space.open(out)
    typer.echo(json.dumps(_described(space), indent=2, ensure_ascii=False) if as_json else _summary(space))


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
    """Show a progress bar on a terminal; yields a function that takes the fraction that is done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("counting", total=1.0)
        yield lambda done: progress.update(task, completed=done, description="counting" if done < 1 else "merging")


def _build(corpus: Corpus, out: str, parameters: Parameters) -> None:
    from tidegate.semantics.builder import build as build_space

    with _progress() as set_progress:

        def on_document(number: int) -> None:
            if number % _PROGRESS_INTERVAL == 0 or corpus.done >= 1:
                set_progress(corpus.done)

        build_space(corpus, out, parameters=parameters, counted=on_document)


def _build_on_spark(corpus: str, out: str, parameters: Parameters) -> None:
    try:
        from tidegate.pipelines.semantics import build as build_space
        from tidegate.pipelines.semantics import session
    except ModuleNotFoundError as exc:
        raise MissingDependency(str(exc.name), "spark") from exc
    with _progress() as set_progress:
        spark = session()
        try:
            build_space(spark, corpus, out, parameters=parameters, counted=set_progress)
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


def _summary(space: Space) -> str:
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
    theme: Annotated[list[str] | None, typer.Option(help="A theme; may be repeated.")] = None,
    to: Annotated[list[str] | None, typer.Option(help="A term to compare with; may be repeated.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many concepts and terms to show.")] = 10,
    as_json: options.AsJson = False,
) -> None:
    """Show the documents that a term occurs in most, and the terms that are most related to it."""
    from tidegate.semantics.default import default_semantics
    from tidegate.semantics.looking import look

    description = look(default_semantics(space), term, theme or [], to or [], count=count)
    if as_json:
        typer.echo(json.dumps(description, indent=2, ensure_ascii=False))
        return
    lines = [f"{term} = {' '.join(description['words']) or 'only stop words'}"]
    if theme:
        lines.append(f"in {', '.join(theme)}: {description['basis']:,} of {description['documents']:,} documents")
    if description["unknown"]:
        lines.append(f"unknown here: {', '.join(description['unknown'])}")
    if description["related"]:
        lines += ["", "related"]
        for related in description["related"]:
            by = ", ".join(concept["concept"] for concept in related["concepts"])
            lines.append(f"  {related['relatedness']:.3f}  {related['to']}{f'  by {by}' if by else ''}")
    for title, name, figure in (("concepts", "concept", "weight"), ("nearest", "term", "relatedness")):
        if description[title]:
            lines += ["", title, *(f"  {row[figure]:.3f}  {row[name]}" for row in description[title])]
    typer.echo("\n".join(lines))
