"""Seeds in the paper's own words: its table 3 as it stands, appliances, makes of cars, rooms, and towns with sensors.

The vocabulary of `events.sensors` was chosen so that a thesaurus has most of it, and scales were fitted on it. This
one was written down from the paper's text (section 5.2.1), and only the threshold was fitted with it. Of a term that
the thesaurus lacks the longest part that it has is exchanged, so that some terms become odd: a `traffic light` may come
as a `traffic fog lamp`.
"""

from __future__ import annotations

import random

from benchmarks.thematic.events import Event
from benchmarks.thematic.thesaurus import Thesaurus

CAPABILITIES = (
    ("solar radiation", "watt per square metre"),
    ("particles", "microgram per cubic metre"),
    ("speed", "kilometre per hour"),
    ("wind direction", "degree"),
    ("wind speed", "metre per second"),
    ("temperature", "degree celsius"),
    ("water flow", "litre per second"),
    ("atmospheric pressure", "hectopascal"),
    ("noise", "decibel"),
    ("ozone", "parts per billion"),
    ("rainfall", "millimetre"),
    ("parking", "vehicle"),
    ("radiation par", "micromole"),
    ("co", "parts per million"),
    ("ground temperature", "degree celsius"),
    ("light", "lux"),
    ("no2", "parts per million"),
    ("soil moisture tension", "kilopascal"),
    ("relative humidity", "percent"),
    ("energy consumption", "kilowatt hour"),
    ("cpu usage", "percent"),
    ("memory usage", "megabyte"),
)
APPLIANCES = (
    *("laptop", "desktop computer", "lcd monitor", "refrigerator", "hair dryer", "air compressor", "iron", "printer"),
    *("television", "dvr", "living room light", "garage door", "dehumidifier", "fan", "washing machine", "microwave"),
    *("computer", "kettle", "toaster"),
)
MAKES = (
    *("Acura", "Alfa Romeo", "Audi", "BMW", "Chevrolet", "Citroen", "Dodge", "Ferrari", "Fiat", "Ford", "Honda"),
    *("Hyundai", "Jaguar", "Kia", "Lexus", "Mazda", "Nissan", "Opel", "Peugeot", "Porsche", "Renault", "Saab", "Seat"),
    *("Skoda", "Subaru", "Suzuki", "Toyota", "Volvo"),
)
TOWNS = (
    ("Santander", "Spain"),
    ("Galway", "Ireland"),
    ("Belgrade", "Serbia"),
    ("Guildford", "United Kingdom"),
    ("Lubeck", "Germany"),
    ("Aarhus", "Denmark"),
    ("Dublin", "Ireland"),
)
VEHICLES = ("car", "bus", "taxi", "truck", "motorcycle")
STREETS = ("motorway", "road", "urban road", "bridge")
PLACES = (
    *("park", "harbour", "airport", "railway station", "university", "hospital", "city centre", "beach", "school"),
    "residential area",
)


def table3(chance: random.Random) -> Event:
    """Draw a seed event with most attributes of one reading."""
    measured, unit = chance.choice(CAPABILITIES)
    seed = {"type": f"{chance.choice(('increased', 'decreased'))} {measured} event"}
    maybe = {"measurement unit": unit}
    where = chance.random()
    if where < 0.4:
        room = chance.choice((101, 112, 113, 204, 210, 311))
        maybe["device"] = chance.choice(APPLIANCES)
        maybe["desk"] = f"desk {room}{chance.choice('abcd')}"
        maybe["room"] = f"room {room}"
        maybe["floor"] = chance.choice(("ground floor", "first floor", "second floor"))
        maybe["zone"] = chance.choice(("building", "office", "laboratory", "meeting room"))
    elif where < 0.7:
        maybe["vehicle"] = chance.choice(VEHICLES)
        maybe["brand"] = chance.choice(MAKES)
        maybe["street"] = chance.choice(STREETS)
    else:
        maybe["area"] = chance.choice(PLACES)
        maybe["platform"] = chance.choice(("lamp post", "bus stop", "traffic light", "building"))
    maybe["city"], maybe["country"] = chance.choice(TOWNS)
    maybe["continent"] = "Europe"
    seed |= {name: value for name, value in maybe.items() if chance.random() < 0.8}
    return seed if len(seed) > 2 else seed | maybe


def parts_exchanged(thesaurus: Thesaurus, term: str) -> list[str]:
    """Return the synonyms of a term, or else of its longest part in the thesaurus."""
    words = term.split()
    for size in range(len(words), 0, -1):
        for begin in range(len(words) - size + 1):
            others = thesaurus.exchange.get(" ".join(words[begin : begin + size]))
            if others:
                return [" ".join([*words[:begin], each, *words[begin + size :]]) for each in others]
    return []
