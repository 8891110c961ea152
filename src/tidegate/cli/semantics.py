"""`tidegate semantics`: spaces of meaning, made and looked into."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from tidegate.cli import options
from tidegate.errors import MissingDependency

if TYPE_CHECKING:
    from tidegate.semantics import Relatedness, Space
    from tidegate.semantics.corpora import Corpus
    from tidegate.semantics.storage import Parameters

app = typer.Typer(help="Spaces of meaning: make them, look into them.", no_args_is_help=True, add_completion=False)

_EVERY = 50
"""Documents between two looks at how far it has come."""


@app.command("build")
def build(
    corpus: Annotated[str, typer.Argument(help="A folder of .txt, a Wikipedia dump (.xml.bz2, .xml), or .parquet.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The folder to make.")],
    least_words: Annotated[int, typer.Option(min=1, help="Leave out documents with fewer words that count.")] = 100,
    least_documents: Annotated[int, typer.Option(min=1, help="Leave out terms in fewer documents.")] = 3,
    on_spark: Annotated[bool, typer.Option("--spark", help="Count on Spark: Parquet, a file or a folder.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Make a space of a corpus: every term by the documents it occurs in."""
    from tidegate.semantics import Space
    from tidegate.semantics.corpora import open_corpus
    from tidegate.semantics.storage import Parameters

    parameters = Parameters(least_words, least_documents)
    if on_spark:
        _build_on_spark(corpus, out, parameters)
    else:
        _build(open_corpus(corpus), out, parameters)
    made = Space.open(out)
    typer.echo(json.dumps(_described(made), indent=2, ensure_ascii=False) if as_json else _told(made))


def _build(corpus: Corpus, out: str, parameters: Parameters) -> None:
    from tidegate.semantics.builder import build as build_space

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading", total=1.0)

        def counted(number: int) -> None:
            if number % _EVERY == 0 or corpus.done >= 1:
                doing = "reading" if corpus.done < 1 else "writing"
                progress.update(task, completed=corpus.done, description=doing)

        build_space(corpus, out, name=corpus.name, parameters=parameters, counted=counted)


def _build_on_spark(corpus: str, out: str, parameters: Parameters) -> None:
    try:
        from tidegate.pipelines.semantics import build as build_space
        from tidegate.pipelines.semantics import session
    except ModuleNotFoundError as exc:
        raise MissingDependency(str(exc.name), "spark") from exc
    with Console(stderr=True).status("counting on Spark"):
        spark = session()
        try:
            build_space(spark, Path(corpus), out, parameters=parameters)
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
    space: Annotated[str, typer.Option(help="The folder of the space.")] = "space",
    theme: Annotated[list[str] | None, typer.Option(help="A theme tag; may be given again.")] = None,
    to: Annotated[list[str] | None, typer.Option(help="A term to relate it to; may be given again.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many concepts and terms.")] = 10,
    as_json: options.AsJson = False,
) -> None:
    """Show what a term means: the documents that say most of it, and the terms nearest to it."""
    from tidegate.semantics import Relatedness, Space

    found = look(Relatedness(Space.open(space)), term, theme or [], to or [], count)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    lines = [f"{term} = {' '.join(found['words']) or 'nothing that counts'}"]
    if theme:
        lines.append(f"in {', '.join(theme)}: {found['basis']:,} of {found['documents']:,} documents")
    if found["unknown"]:
        lines.append(f"unknown here: {', '.join(found['unknown'])}")
    for title in ("related", "concepts", "nearest"):
        if found[title]:
            lines += ["", title, *(f"  {figure:.3f}  {name}" for name, figure in found[title])]
    typer.echo("\n".join(lines))


def look(related: Relatedness, term: str, themes: list[str], others: list[str], count: int) -> dict[str, Any]:
    """All that is shown of a term, as JSON values."""
    from tidegate.semantics.neighbours import concepts, nearest

    words = related.space.words(term)
    return {
        "term": term,
        "themes": themes,
        "words": words,
        "unknown": [word for word in words if not len(related.term_vector(word, themes))],
        "documents": related.space.size,
        "basis": related.basis(themes).size,
        "related": [[other, related(term, other, themes, themes)] for other in others],
        "concepts": [list(pair) for pair in concepts(related, term, themes, count)],
        "nearest": [list(pair) for pair in nearest(related, term, themes, count)],
    }
