"""`tidegate bench`: run the benchmarks of a checkout."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from tidegate.errors import EnvironmentProblem

_AREAS = ("filters", "matching", "pipelines", "delivery", "discovery", "federation", "federation_link", "thematic")


def bench(
    area: Annotated[str, typer.Argument(help=f"What to measure: {', '.join(_AREAS)}.")],
    quick: Annotated[bool, typer.Option(help="Fewer repeats: a first impression.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    out: Annotated[str, typer.Option(help="Where the results are written.")] = "benchmarks/results",
    space: Annotated[str | None, typer.Option(help="thematic: the folder of a space, not our small one.")] = None,
    thesaurus: Annotated[str | None, typer.Option(help="thematic: a thesaurus, not our small one.")] = None,
    full: Annotated[bool, typer.Option(help="thematic: the paper's 4,500 runs.")] = False,
) -> None:
    """Measure one area; results are JSON with commit, CPU and versions."""
    if area not in _AREAS:
        raise EnvironmentProblem(f"no benchmark is named {area!r}; expected one of {', '.join(_AREAS)}")
    options = {
        "space": Path(space) if space else None,
        "thesaurus_file": Path(thesaurus) if thesaurus else None,
        "full": full,
    }
    if area != "thematic" and any(options.values()):
        raise EnvironmentProblem(f"--space, --thesaurus and --full are of 'thematic', not of {area!r}")
    checkout = Path(__file__).parents[4]
    here = checkout / "benchmarks"
    if not (here / f"{area}.py").exists() and not (here / area / "__init__.py").exists():
        raise EnvironmentProblem("the benchmarks come with a checkout of Tidegate, not with the installed package")
    sys.path.insert(0, str(checkout))
    import_module(f"benchmarks.{area}").run(
        quick=quick, as_json=as_json, out=Path(out), **(options if area == "thematic" else {})
    )
