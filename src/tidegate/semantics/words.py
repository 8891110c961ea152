"""Splits text into the terms of a space: words without stop words, reduced to their stems.

A space must analyse filters exactly as it analysed its corpus. So the analysis has a name and a version, which a space
stores. A change of the result of `terms` needs a change of `ANALYSIS`.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from tidegate.semantics.stemmer import stem

ANALYSIS = "english-1"
"""Name and version of the analysis. A space built by another analysis is refused: its answers would be wrong."""

_COMMON = """
a about above across after afterwards again against all almost alone along already also although always am among
amongst an and another any anyhow anyone anything anyway anywhere are aren around as at back be became because become
becomes becoming been before beforehand behind being below beside besides between beyond both but by can cannot could
couldn did didn do does doesn doing don done down due during each eg either else elsewhere enough etc even ever every
everyone everything everywhere except few for former formerly from further get give go had hadn has hasn have haven
having he hence her here hereafter hereby herein hereupon hers herself him himself his how however ie if in indeed
instead into is isn it its itself just keep last latter latterly least less ll many may me meanwhile might mine more
moreover most mostly much must my myself namely neither never nevertheless next no nobody none nor not nothing now
nowhere of off often on once one only onto or other others otherwise our ours ourselves out over own per perhaps
please put rather re same see seem seemed seeming seems several she should shouldn since so some somehow someone
something sometime sometimes somewhere still such than that the their theirs them themselves then thence there
thereafter thereby therefore therein thereupon these they this those though through throughout thru thus to together
too toward towards under until up upon us ve very via was wasn we well were weren what whatever when whence whenever
where whereafter whereas whereby wherein whereupon wherever whether which while whither who whoever whole whom whose
why will with within without won would wouldn yet you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_COMMON.split())
"""Function words, which say nothing about the subject of a text."""

WORD = re.compile(r"[^\W_]+")
"""Letters and digits of any alphabet."""
_MAX_CACHED_WORDS = 1_000_000
"""Words whose terms an `Analyser` caches: more than a language has, and a bound for corpora full of numbers."""


class Analyser:
    """Turns text into the terms of a space. Keeps the term of each word that it has met."""

    def __init__(self) -> None:
        self.term = lru_cache(_MAX_CACHED_WORDS)(term_of)
        """`term_of`, cached."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the cache."""
        return Analyser, ()

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text in its order, repeated as often as they occur.

        >>> Analyser().terms("The energy consumption of Room 112")
        ['energi', 'consumpt', 'room', '112']
        """
        return [term for word in WORD.findall(text.lower()) if (term := self.term(word)) is not None]

    def counts(self, text: str) -> dict[str, int]:
        """Return how often each term occurs in a text."""
        counts: dict[str, int] = {}
        for word, count in Counter(WORD.findall(text.lower())).items():
            term = self.term(word)
            if term is not None:
                counts[term] = counts.get(term, 0) + count
        return counts


def term_of(word: str) -> str | None:
    """Return the stem of a lower-case word, or None for a stop word or a single character."""
    return None if len(word) < 2 or word in STOP_WORDS else stem(word)
