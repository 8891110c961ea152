"""A thesaurus: labels with similar meaning, and their headings.

The file is JSON in the shape that EuroVoc's export has: `concepts` by id, each with a preferred label (`pref`), others
(`alt`), the ids of related concepts (`rt`), its micro-thesauri (`mt`) and whether it is a top term (`top`);
`microthesauri` by id, each with a `label`. `thesaurus.json` beside this module is our own, with a corpus to go with it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.errors import EnvironmentProblem

OWN = Path(__file__).with_name("thesaurus.json")


@dataclass(frozen=True)
class Thesaurus:
    """The parts of a thesaurus that the event generator needs."""

    exchange: dict[str, tuple[str, ...]]
    """Synonyms of a label: other labels of its concept, and the names of related concepts."""
    tops: tuple[str, ...]
    """Theme tags."""
    groups: dict[str, tuple[str, ...]]
    """The names of concepts by micro-thesaurus."""


def load(path: Path) -> Thesaurus:
    """Read the file. Raises an `EnvironmentProblem` if it has another format."""
    try:
        found = _read(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as exc:
        raise EnvironmentProblem(f"the thesaurus {path} can't be read: {exc}") from exc
    except (KeyError, TypeError, IndexError, AttributeError) as exc:
        raise EnvironmentProblem(
            f"{path} is no thesaurus: expected 'concepts' with pref, alt, rt, mt and top, and 'microthesauri' "
            f"with labels, and met {type(exc).__name__}: {exc}"
        ) from exc
    if not found.groups:
        raise EnvironmentProblem(f"the thesaurus {path} is of no use: no concept has another label or a related one")
    if not found.tops:
        raise EnvironmentProblem(f"the thesaurus {path} is of no use: no concept is a top term, which tags are made of")
    return found


def _read(found: Any) -> Thesaurus:
    concepts: dict[str, dict[str, Any]] = found["concepts"]
    exchange: dict[str, set[str]] = {}
    groups: dict[str, list[str]] = {}
    for concept in concepts.values():
        labels = {_text(concept["pref"]), *map(_text, _listed(concept["alt"]))}
        related = {concepts[str(each)]["pref"] for each in _listed(concept["rt"]) if str(each) in concepts}
        for label in labels:
            exchange.setdefault(label, set()).update((labels | related) - {label})
        if len(labels | related) > 1:
            name = found["microthesauri"][str(concept["mt"][0])]["label"]
            groups.setdefault(re.sub(r"^\d+ ", "", name), []).append(concept["pref"])
    return Thesaurus(
        {label: tuple(sorted(others)) for label, others in sorted(exchange.items())},
        tuple(sorted({each["pref"] for each in concepts.values() if each["top"]})),
        {name: tuple(sorted(each)) for name, each in sorted(groups.items())},
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"a label that is no text: {value!r}")
    return value


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"what is no list: {value!r}")
    return value
