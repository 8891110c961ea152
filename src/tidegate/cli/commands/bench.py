"""`tidegate bench`: run the benchmarks of a source checkout."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tidegate.errors import EnvironmentProblem

_AREAS = ("filters", "matching", "pipelines", "delivery", "discovery", "federation", "federation_link", "thematic")


def bench(
    area: Annotated[str, typer.Argument(help=f"The area to measure: {', '.join(_AREAS)}.")],
    quick: Annotated[bool, typer.Option(help="Fewer repeats, for a first impression.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    out: Annotated[str, typer.Option(help="The folder to write the results to.")] = "benchmarks/results",
    space: Annotated[str | None, typer.Option(help="thematic: the folder of a space; default: our small one.")] = None,
    thesaurus: Annotated[str | None, typer.Option(help="thematic: a thesaurus file; default: our small one.")] = None,
    full: Annotated[bool, typer.Option(help="thematic: all 4,500 runs of the paper.")] = False,
) -> None:
    """Measure one area and write the results as JSON, with commit, CPU and versions."""
    if area not in _AREAS:
        raise EnvironmentProblem(f"there is no benchmark {area!r}; expected one of {', '.join(_AREAS)}")
    options = {
        "space": Path(space) if space else None,
        "thesaurus_file": Path(thesaurus) if thesaurus else None,
        "full": full,
    }
    if area != "thematic" and any(options.values()):
        raise EnvironmentProblem(f"--space, --thesaurus and --full are options of 'thematic' only, not of {area!r}")
    checkout = Path(__file__).parents[4]
    folder = checkout / "benchmarks"
    if not (folder / f"{area}.py").exists() and not (folder / area / "__init__.py").exists():
        raise EnvironmentProblem("the installed package has no benchmarks; run them in a checkout of Tidegate")
    sys.path.insert(0, str(checkout))
    import_module(f"benchmarks.{area}").run(
        quick=quick, as_json=as_json, out=Path(out), **(options if area == "thematic" else {})
    )
