"""Throughput of semantic matching: Arrow batches of strings, many subscriptions, with themes.

    python -m benchmarks.thematic_speed SPACE EUROVOC [--json] [--subscriptions 94,10000] [--threshold 0.3]

Events are things that sensors tell of, whose words were exchanged for others of EuroVoc, each with its tags. They come
as a record batch whose columns are all attributes that occur, most of them null in an event. The first batch meets
every word for the first time; those after it meet them again. The first hundred subscriptions are some tuples of such
a thing each, as in the paper, which has 94; those beyond have any label of EuroVoc as values.

Times are CPU time of one thread. What is counted is `Matcher.match`, from the batch to pairs and degrees.
"""

from __future__ import annotations

import json
import random
import sys
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate import Matcher, Space

SEED = 7
BATCH = 8_192
TAGS = {"subscriptions": 6, "events": 3}
"""The number of theme tags of subscriptions, and of events, which have a subset."""


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
class Speed:
    """One measurement."""

    subscriptions: int
    threshold: float | None
    events: int
    """Seconds per batch."""
    columns: int
    matches_per_event: float
    add_s: float
    first_per_s: int
    """Seconds of the first batch, in which every word is new."""
    first_match_s: float
    """Seconds to open the space, add the subscriptions and match one event."""
    events_per_s: float
    dicts_per_s: float
    """The same with dicts."""
    index: dict[str, Any]


def exchangeable(eurovoc: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the synonyms of a label: labels of its concept and of related concepts."""
    concepts = eurovoc["concepts"]
    out: dict[str, list[str]] = {}
    for concept in concepts.values():
        labels = [concept["pref"], *concept["alt"]]
        related = [concepts[str(each)]["pref"] for each in concept["rt"] if str(each) in concepts]
        for label in labels:
            out[label] = sorted({*labels, *related} - {label})
    return out


def exchanged(chance: random.Random, exchange: Mapping[str, Sequence[str]], text: str) -> str:
    """Return a text or, with probability 1/2, a synonym."""
    for label in (text, *TYPES):
        if label in text and exchange.get(label) and chance.random() < 0.5:
            return text.replace(label, chance.choice(exchange[label]))
    return text


def seeds(chance: random.Random, count: int) -> list[dict[str, str]]:
    """Return terms that sensor events contain."""
    found = []
    for _ in range(count):
        names = chance.sample(sorted(VALUES), chance.randrange(3, 7))
        kind = f"{chance.choice(('increased', 'decreased'))} {chance.choice(TYPES)} event"
        found.append({"type": kind, **{name: chance.choice(VALUES[name]) for name in names}})
    return found


def quoted(text: str) -> str:
    """Return a text as a literal of the filter language."""
    return "'" + text.replace("'", "''") + "'"


def subscriptions(
    chance: random.Random, exchange: Mapping[str, Sequence[str]], tags: Sequence[str], count: int
) -> dict[str, str]:
    """Filters with ~ everywhere: the first hundred on what events tell of, others on all that the thesaurus has."""
    theme = f" WITH THEME ({', '.join(map(quoted, tags))})"
    labels = sorted(exchange)
    found = {}
    for n, seed in enumerate(seeds(chance, count)):
        chosen = chance.sample(sorted(seed.items()), chance.randrange(2, 5))
        if n >= 100:
            chosen = [(name, chance.choice(labels)) for name, _ in chosen]
        terms = (f'"{name}"~ = {quoted(value)}~' for name, value in chosen)
        found[f"s{n}"] = " AND ".join(terms) + theme
    return found


def measured(
    space: str, eurovoc: Mapping[str, Any], count: int, threshold: float | None, batches: int, size: int = BATCH
) -> Speed:
    """Match batches of events against a number of subscriptions."""
    chance = random.Random(SEED)
    exchange = exchangeable(eurovoc)
    tops = sorted(each["pref"] for each in eurovoc["concepts"].values() if each["top"])
    tags = chance.sample(tops, min(len(tops), TAGS["subscriptions"]))
    filters = subscriptions(chance, exchange, tags, count)
    origins = [chance.choice(seeds(chance, 166)) for _ in range(200)]
    pool = [
        {exchanged(chance, exchange, name): exchanged(chance, exchange, value) for name, value in seed.items()}
        for seed in origins
        for _ in range(10)
    ]
    rows: list[dict[str, Any]] = [{**chance.choice(pool), "_themes": tags[: TAGS["events"]]} for _ in range(size)]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "_themes"]
    schema = pa.schema([*((name, pa.string()) for name in names), ("_themes", pa.list_(pa.string()))])
    batch = pa.RecordBatch.from_pylist(rows, schema)

    begin = time.process_time()
    matcher = Matcher(semantics=Space.open(space), threshold=threshold)
    matcher.add_all(filters)
    added = time.process_time()
    matcher.match(rows[:1]).pairs()
    one = time.process_time()
    found = matcher.match(batch)
    found.pairs()
    first = time.process_time()
    for _ in range(batches):
        again = matcher.match(batch)
        again.pairs()
        again.degrees()
    last = time.process_time()
    matcher.match(rows).pairs()
    dicts = time.process_time() - last
    return Speed(
        subscriptions=count,
        threshold=threshold,
        events=len(rows),
        columns=len(names),
        matches_per_event=round(len(found) / len(rows), 2),
        add_s=round(added - begin, 3),
        first_per_s=round(len(rows) / (first - one)),
        first_match_s=round(one - begin, 3),
        events_per_s=round(batches * len(rows) / (last - first)),
        dicts_per_s=round(len(rows) / dicts),
        index=matcher.describe()["by_meaning"],
    )


def main() -> None:
    """Print a line, or a JSON object, per number of subscriptions."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("space")
    parser.add_argument("eurovoc")
    parser.add_argument("--subscriptions", default="94,10000")
    parser.add_argument("--threshold", type=float, default=None, help="else that of the space")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    eurovoc = json.loads(Path(given.eurovoc).read_text("utf-8"))
    for count in map(int, given.subscriptions.split(",")):
        found = measured(given.space, eurovoc, count, given.threshold, given.batches)
        if given.json:
            sys.stdout.write(json.dumps(asdict(found)) + "\n")
            continue
        sys.stdout.write(
            f"{found.subscriptions:6,} subscriptions  {found.events_per_s:9,} events/s from Arrow "
            f"{found.dicts_per_s:9,} from dicts   {found.matches_per_event} matches an event   "
            f"first match {found.first_match_s} s, every word new {found.first_per_s:,} events/s   {found.index}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
