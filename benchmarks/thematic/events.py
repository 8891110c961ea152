"""Events and subscriptions as in the paper (section 5.2), and the relevant pairs.

1. *Seeds* tell of things that sensors measure (the paper's table 3), on appliances in rooms, on vehicles or at places.
2. A *subscription* is some tuples of a seed, all with ~ on both sides: 100 % approximation.
3. An *event* is a seed whose terms, each with an even chance, were exchanged by the thesaurus.
4. An event is *relevant* when it has, for each predicate, a tuple that is the predicate's or an exchange of it.

The paper's own seeds were not published; `table3.py` has seeds in its words. Other words, drawn from the thesaurus
itself, make sets of concepts that no scale was fitted on (`other_words`); and in `unseen` sets no term of a
subscription that can be exchanged occurs in any event.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.thematic.thesaurus import Thesaurus

SEEDS, SUBSCRIPTIONS = 166, 94
"""The paper's."""

Event = dict[str, str]

MEASURED = (
    ("solar radiation", "watt per square metre"),
    ("particles", "microgram per cubic metre"),
    ("speed", "kilometre per hour"),
    ("wind direction", "degree"),
    ("wind energy", "metre per second"),
    ("temperature", "celsius"),
    ("water", "litre per second"),
    ("atmospheric pressure", "hectopascal"),
    ("noise", "decibel"),
    ("ozone", "parts per billion"),
    ("rain", "millimetre"),
    ("parking", "vehicle count"),
    ("air pollution", "parts per million"),
    ("ground temperature", "celsius"),
    ("light", "lux"),
    ("soil moisture tension", "kilopascal"),
    ("relative humidity", "percent"),
    ("energy consumption", "kilowatt hour"),
    ("cpu usage", "percent"),
    ("memory usage", "megabyte"),
    ("road traffic", "vehicle count"),
    ("gas", "cubic metre"),
)
DEVICES = (
    *("computer", "lap-top", "printer", "television", "refrigerator", "microwave oven", "desk lamp", "air compressor"),
    *("hair dryer", "kitchen light", "washing machine", "micro-computer", "server", "telephone"),
)
VEHICLES = ("motor car", "bus", "truck", "motorcycle", "tram", "aircraft", "ship")
BRANDS = ("Toyota", "Ford", "BMW", "Volvo", "Fiat", "Renault", "Honda", "Audi")
PLACES = (
    *("airport", "harbour", "railway station", "bridge", "park", "hospital", "university", "library"),
    *("motorway", "school", "parking area"),
)
TOWNS = (
    ("Galway", "Ireland", "Connacht"),
    ("Dublin", "Ireland", "Leinster"),
    ("Santander", "Spain", "Cantabria"),
    ("Bilbao", "Spain", "Basque Country"),
    ("Lübeck", "Germany", "Schleswig-Holstein"),
    ("Guildford", "United Kingdom", "England"),
    ("Belgrade", "Serbia", "Vojvodina"),
    ("Århus", "Denmark", "Central Jutland"),
    ("Torino", "Italy", "Piedmont"),
)


@dataclass(frozen=True)
class EventSet:
    """Subscriptions, events, and the relevant pairs."""

    subscriptions: list[tuple[tuple[str, str], ...]]
    events: list[Event]
    relevant: list[list[bool]]
    """True for relevant pairs, by subscription and event."""


def sensors(chance: random.Random) -> Event:
    """Draw a seed event in the words of the paper's sources."""
    measured, unit = chance.choice(MEASURED)
    seed = {"type": f"{chance.choice(('increased', 'decreased'))} {measured} event"}
    maybe = {"measurement unit": unit}
    where = chance.choice(("indoors", "vehicle", "place"))
    if where == "indoors":
        room = chance.choice((112, 204, 7, 310, 15))
        seed["device"] = chance.choice(DEVICES)
        seed["room"] = f"room {room}"
        seed["zone"] = chance.choice(("housing", "building", "university", "office"))
        maybe["desk"] = f"desk {room}{chance.choice('abc')}"
        maybe["floor"] = chance.choice(("ground floor", "first floor", "second floor"))
    elif where == "vehicle":
        seed["vehicle"] = chance.choice(VEHICLES)
        maybe["brand"] = chance.choice(BRANDS)
        maybe["road"] = chance.choice(("motorway", "urban road", "country road"))
    else:
        seed["area"] = chance.choice(PLACES)
    seed["city"], seed["country"], maybe["region"] = chance.choice(TOWNS)
    maybe["continent"] = "Europe"
    return seed | {name: value for name, value in maybe.items() if chance.random() < 0.5}


FEWEST_GROUPS = 4
"""The minimum number of names for seeds of other words."""


def other_words(
    thesaurus: Thesaurus, part: int, draw: int = 0, parts: int = 2
) -> Callable[[random.Random], Event] | None:
    """Return seeds of concepts, named by their micro-thesauri: parts of the thesaurus without a common concept.

    A draw are 14 names and 5 values of each. None where it has too few groups of concepts.
    """
    drawn = random.Random(part + parts * draw)
    groups = {
        name: [each for each in concepts if zlib.crc32(each.encode()) % parts == part]
        for name, concepts in thesaurus.groups.items()
    }
    names = [name for name, concepts in groups.items() if len(concepts) >= 5]
    if len(names) < FEWEST_GROUPS:
        return None
    names = sorted(drawn.sample(names, min(14, len(names))))
    values = {name: drawn.sample(groups[name], 5) for name in names}

    def seed(chance: random.Random) -> Event:
        chosen = chance.sample(names, min(len(names), chance.randrange(4, 8)))
        return {name: chance.choice(values[name]) for name in chosen}

    return seed


def make(
    thesaurus: Thesaurus,
    events: int,
    *,
    seed: int = 7,
    seeds: Callable[[random.Random], Event] = sensors,
    exchange: Callable[[Thesaurus, str], list[str]] | None = None,
    unseen: bool = False,
) -> EventSet:
    """Generate an event set: the same on every machine, without duplicates. `exchange` returns a term's synonyms."""
    chance = random.Random(seed)
    made = [seeds(chance) for _ in range(SEEDS)]
    wanted: list[tuple[tuple[str, str], ...]] = []
    for _ in range(100 * SUBSCRIPTIONS):  # few words may not give enough distinct events
        if len(wanted) == SUBSCRIPTIONS:
            break
        one = chance.choice(made)
        some = tuple(sorted(chance.sample(sorted(one.items()), min(len(one), chance.randrange(2, 5)))))
        if some not in wanted:
            wanted.append(some)
    terms = sorted({term for each in made for pair in each.items() for term in pair})
    variants = {term: (exchange or variants_of)(thesaurus, term) for term in terms}
    spoken = {term: chance.choice(others) if unseen and others else term for term, others in variants.items()}
    barred = {spoken[term] for term in terms if unseen and variants[term]}

    def exchanged(term: str) -> str:
        others = [each for each in variants[term] if each not in barred]
        return chance.choice(others) if others and (term in barred or chance.random() < 0.5) else term

    found: dict[tuple[tuple[str, str], ...], Event] = {}
    for _ in range(20 * events):
        event = {exchanged(name): exchanged(value) for name, value in chance.choice(made).items()}
        found.setdefault(tuple(sorted(event.items())), event)
        if len(found) == events:
            break
    allowed = {term: {term, *others} for term, others in variants.items()}
    made_of = list(found.values())
    return EventSet(
        [tuple((spoken[name], spoken[value]) for name, value in each) for each in wanted],
        made_of,
        [[_relevant(each, event, allowed) for event in made_of] for each in wanted],
    )


def variants_of(thesaurus: Thesaurus, term: str) -> list[str]:
    """Return the synonyms of a term; for an event type, of the part that names the measured quantity."""
    if term in thesaurus.exchange:
        return list(thesaurus.exchange[term])
    direction, _, rest = term.partition(" ")
    measured = rest.removesuffix(" event")
    if direction in ("increased", "decreased") and measured != rest:
        return [f"{direction} {each} event" for each in thesaurus.exchange.get(measured, ())]
    return []


def _relevant(wanted: Sequence[tuple[str, str]], event: Event, allowed: dict[str, set[str]]) -> bool:
    return all(any(a in allowed[name] and b in allowed[value] for a, b in event.items()) for name, value in wanted)
