"""Who is reached over which link, and the loop that a link would close."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

Path = tuple[str, ...]

MAX_PATHS = 1_000
"""Brokers that are reached over one link."""
MAX_HOPS = 64
"""Brokers on the way to one of them."""


def paths_for(me: str, known: Mapping[str, Iterable[Path]], neighbour: str) -> tuple[Path, ...]:
    """What a broker tells a neighbour: whom it reaches, and by which way; never back over the same link.

    >>> paths_for("b", {"a": [("a",)], "c": [("c",), ("c", "d")]}, "a")
    (('b',), ('b', 'c'), ('b', 'c', 'd'))
    """
    ways = [[path for path in paths if me not in path] for link, paths in known.items() if link != neighbour]
    if sum(map(len, ways)) >= MAX_PATHS:  # an equal share of each: none keeps a neighbour from knowing the others
        left = MAX_PATHS - 1
        for n, paths in enumerate(ways := sorted(ways, key=len)):
            ways[n] = sorted(paths, key=len)[: left // (len(ways) - n)]
            left -= len(ways[n])
    found = [(me,), *((me, *path) for paths in ways for path in paths if len(path) < MAX_HOPS)]
    return tuple(sorted(found))


def loop_by(me: str, known: Mapping[str, Iterable[Path]], neighbour: str, paths: Iterable[Path]) -> Path | None:
    """The loop that is there if a neighbour reaches these brokers; None: there is none.

    It begins and ends with the broker who asks.

    >>> loop_by("a", {"b": [("b",), ("b", "c")]}, "d", [("d",), ("d", "c")])
    ('a', 'd', 'c', 'b', 'a')
    """
    mine = {path[-1]: path for link, each in known.items() if link != neighbour for path in each}
    loops = []
    for path in paths:
        if me in path:
            loops.append((me, *path[: path.index(me)], me))
        elif path and path[-1] in mine:
            loops.append((me, *path, *reversed(mine[path[-1]][:-1]), me))
    return min(loops, key=lambda loop: (len(loop), loop), default=None)


def greatest_link(loop: Path) -> tuple[str, str]:
    """The link of a loop that has to go: all brokers on it name the same one, wherever they begin.

    >>> greatest_link(("a", "d", "c", "a"))
    ('c', 'd')
    """
    return max((min(pair), max(pair)) for pair in pairwise(loop))
