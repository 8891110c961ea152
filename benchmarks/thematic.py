"""How well events are matched by meaning, in the manner of the paper: F1 over events whose words were exchanged.

    python -m benchmarks.thematic SPACE EUROVOC

Seed events are made of things that sensors tell of. Subscriptions are some tuples of a seed, all with ~. Events are
seeds whose words, each with an even chance, were exchanged for another label of the same concept in EuroVoc, or for a
concept related to it. An event is relevant to a subscription when its seed has the subscription's tuples. Events are
ranked by degree; precision at eleven levels of recall is averaged over subscriptions, and the greatest F1 is the
figure. Theme tags are top terms of EuroVoc, drawn at random as the paper did; each size several times.

The paper's own seeds were not published: figures compare with each other, not with the paper's.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate import Space
from tidegate.semantics import CosineEsa, PaperEsa, Relatedness
from tidegate.semantics.thematic import Predicate, Thematic, match

SEED = 7
SEEDS, SUBSCRIPTIONS, EVENTS = 166, 94, 200
SAMPLES = 5
"""Sets of tags that are drawn for each size."""
THEMES = ((0, 0), (2, 2), (10, 3), (30, 10))
"""Tags of subscriptions and of events, which are some of them."""

TYPES = ("energy consumption", "noise", "air quality", "parking area", "solar energy", "wind energy", "drinking water")
VALUES = {
    "vehicle": ("motor car", "bus", "commercial vehicle", "two-wheeled vehicle", "aircraft"),
    "town": ("Galway", "Santander", "Dublin", "Bilbao"),
    "country": ("Ireland", "Spain", "Germany", "Italy", "Denmark"),
    "housing": ("room 112", "room 204", "room 7"),
    "educational institution": ("university", "primary education", "library"),
    "computer": ("laptop", "server", "printer"),
    "region": ("urban area", "rural region", "coastal region"),
}


@dataclass(frozen=True)
class Workload:
    """Subscriptions, events, and which belong together."""

    subscriptions: list[tuple[Predicate, ...]]
    events: list[dict[str, str]]
    relevant: list[list[bool]]
    """By subscription and event."""


def exchangeable(eurovoc: Mapping[str, object]) -> dict[str, list[str]]:
    """What a label may be exchanged for."""
    concepts = eurovoc["concepts"]
    assert isinstance(concepts, dict)
    out: dict[str, list[str]] = {}
    for concept in concepts.values():
        labels = [concept["pref"], *concept["alt"]]
        related = [concepts[str(each)]["pref"] for each in concept["rt"] if str(each) in concepts]
        for label in labels:
            out[label] = sorted({*labels, *related} - {label})
    return out


def workload(exchange: Mapping[str, list[str]]) -> Workload:
    """Seeded: the same on every machine."""
    chance = random.Random(SEED)
    seeds = []
    for _ in range(SEEDS):
        names = chance.sample(sorted(VALUES), chance.randrange(3, 7))
        kind = f"{chance.choice(('increased', 'decreased'))} {chance.choice(TYPES)} event"
        seeds.append({"type": kind, **{name: chance.choice(VALUES[name]) for name in names}})
    subscriptions = []
    for _ in range(SUBSCRIPTIONS):
        seed = chance.choice(seeds)
        subscriptions.append(chance.sample(sorted(seed.items()), chance.randrange(2, 5)))

    def exchanged(text: str) -> str:
        for label in (text, *TYPES):
            if label in text and exchange.get(label) and chance.random() < 0.5:
                return text.replace(label, chance.choice(exchange[label]))
        return text

    origins = [chance.choice(seeds) for _ in range(EVENTS)]
    return Workload(
        [tuple(Predicate(name, value, True, True) for name, value in each) for each in subscriptions],
        [{exchanged(name): exchanged(value) for name, value in seed.items()} for seed in origins],
        [[all(seed.get(name) == value for name, value in each) for seed in origins] for each in subscriptions],
    )


def best_f1(degrees: Sequence[Sequence[float]], relevant: Sequence[Sequence[bool]]) -> float:
    """The greatest F1 over eleven levels of recall; ties are ranked against us."""
    levels = [level / 10 for level in range(11)]
    precisions = [0.0] * len(levels)
    asked = 0
    for row, wanted in zip(degrees, relevant, strict=True):
        total = sum(wanted)
        if not total:
            continue
        asked += 1
        order = sorted(range(len(row)), key=lambda n: (-row[n], wanted[n]))
        hits, points = 0, []
        for rank, n in enumerate(order, 1):
            hits += wanted[n]
            points.append((hits / total, hits / rank))
        for at, level in enumerate(levels):
            precisions[at] += max(precision for recall, precision in points if recall >= level - 1e-9)
    means = [(level, each / asked) for level, each in zip(levels, precisions, strict=True)]
    return max(2 * recall * precision / (recall + precision) for recall, precision in means if recall)


def measured(given: Workload, degree: Callable[[tuple[Predicate, ...], dict[str, str]], float]) -> tuple[float, float]:
    """F1, and pairs of event and subscription a second."""
    begin = time.perf_counter()
    degrees = [[degree(predicates, event) for event in given.events] for predicates in given.subscriptions]
    taken = time.perf_counter() - begin
    return best_f1(degrees, given.relevant), len(given.events) * len(given.subscriptions) / taken


def equal(predicates: tuple[Predicate, ...], event: dict[str, str]) -> float:
    """Without meaning: the part of the predicates that are there letter by letter."""
    return sum(event.get(each.attribute) == each.value for each in predicates) / len(predicates)


def main(space: str, eurovoc: str) -> None:
    """Print a line for each measure and size of themes."""
    opened = Space.open(space)
    thesaurus = json.loads(Path(eurovoc).read_text("utf-8"))
    given = workload(exchangeable(thesaurus))
    tops = sorted(each["pref"] for each in thesaurus["concepts"].values() if each["top"])
    print(opened)
    print(f"{'letter by letter':28} F1 {measured(given, equal)[0]:.2f}")
    for measure in (PaperEsa(), CosineEsa()):
        for many, few in THEMES:
            found = [_in_themes(given, Relatedness(opened, measure), tags, few) for tags in _samples(tops, many)]
            figures = [f1 for f1, _ in found]
            rate = statistics.median(rate for _, rate in found)
            spread = f"{min(figures):.2f} to {max(figures):.2f}" if len(figures) > 1 else ""
            mean = statistics.mean(figures)
            print(
                f"{measure.name:8} themes {many:2}, {few:2}   F1 {mean:.2f}  {spread:12}  {rate:6,.0f} pairs/s",
                flush=True,
            )


def _samples(tops: list[str], many: int) -> list[list[str]]:
    return [random.Random(SEED + sample).sample(tops, many) for sample in range(SAMPLES if many else 1)]


def _in_themes(given: Workload, related: Relatedness, tags: list[str], few: int) -> tuple[float, float]:
    def degree(predicates: tuple[Predicate, ...], event: dict[str, str]) -> float:
        found = match(related, Thematic(predicates, frozenset(tags)), event, tags[:few])
        return found[0].degree if found else 0.0

    return measured(given, degree)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
