"""Which brokers are reached over which link, and the loop that a link would close."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from tidegate.errors import FederationError
from tidegate.federation.routes.messages import Path

MAX_PATHS = 1_000
"""Brokers that may be reached over one link."""
MAX_HOPS = 64
"""Brokers on the path to one of them."""


class PathTable:
    """The paths that neighbours have announced.

    Links form a tree. A new link that would close a known loop is refused before it is made. A loop can still appear
    when two links come up at the same time; then all brokers on it choose the same link to give up.
    """

    def __init__(self, me: str) -> None:
        self._me = me
        self._paths: dict[str, tuple[Path, ...]] = {}

    def via(self, neighbour: str) -> tuple[Path, ...]:
        """Return the paths over a link, as the neighbour has announced them."""
        return self._paths.get(neighbour, ())

    def announcement(self, neighbour: str) -> tuple[Path, ...]:
        """Return the paths to announce to a neighbour: all but those over its own link."""
        return paths_for(self._me, self._paths, neighbour)

    def forget(self, neighbour: str) -> None:
        """Remove the paths over a link that is gone."""
        self._paths.pop(neighbour, None)

    def loop_by_new_link(self, neighbour: str) -> Path | None:
        """Return the loop that a link to a broker would close. None: there is no such loop."""
        if neighbour == self._me:
            return self._me, self._me
        return loop_by(self._me, self._paths, neighbour, [(neighbour,)])

    def learn(self, neighbour: str, paths: tuple[Path, ...], links: Collection[str]) -> tuple[str, Path] | None:
        """Store the paths that a neighbour announces. Returns a link that we must give up, and the loop it closes.

        A neighbour may lie. So a link is given up only if its other end announces the same loop: it must reach the
        neighbour through which the loop returns to us. Announced paths over links of our own that do not exist are
        ignored. Raises a `FederationError` if the paths are malformed or too many.
        """
        _check_paths(neighbour, paths)
        me = self._me
        paths = tuple(path for path in paths if me not in path or path[path.index(me) - 1] in links)
        loop = loop_by(me, self._paths, neighbour, paths)
        self._paths[neighbour] = tuple(path for path in paths if me not in path)
        ends = () if loop is None else greatest_link(loop)
        other = next((end for end in ends if end != me), me)
        if loop is None or me not in ends or other not in links:
            return None
        announced = paths if other == neighbour else self._paths.get(other, ())
        returning = loop[-2] if other == loop[1] else loop[1]
        return (other, loop) if any(returning in path for path in announced) else None


def paths_for(me: str, known: Mapping[str, Iterable[Path]], neighbour: str) -> tuple[Path, ...]:
    """Return the paths that a broker announces to a neighbour; none of them goes back over the same link.

    If there are too many, each other link gets an equal share, so that no neighbour hides what lies behind the others.

    >>> paths_for("b", {"a": [("a",)], "c": [("c",), ("c", "d")]}, "a")
    (('b',), ('b', 'c'), ('b', 'c', 'd'))
    """
    by_link = [[path for path in paths if me not in path] for link, paths in known.items() if link != neighbour]
    if sum(map(len, by_link)) >= MAX_PATHS:
        left = MAX_PATHS - 1
        for n, paths in enumerate(by_link := sorted(by_link, key=len)):
            by_link[n] = sorted(paths, key=len)[: left // (len(by_link) - n)]
            left -= len(by_link[n])
    announced = [(me,), *((me, *path) for paths in by_link for path in paths if len(path) < MAX_HOPS)]
    return tuple(sorted(announced))


def loop_by(me: str, known: Mapping[str, Iterable[Path]], neighbour: str, paths: Iterable[Path]) -> Path | None:
    """Return the shortest loop that exists if a neighbour reaches these brokers, or None.

    The loop starts and ends with `me`.

    >>> loop_by("a", {"b": [("b",), ("b", "c")]}, "d", [("d",), ("d", "c")])
    ('a', 'd', 'c', 'b', 'a')
    """
    mine = {path[-1]: path for link, paths_by_link in known.items() if link != neighbour for path in paths_by_link}
    loops = []
    for path in paths:
        if me in path:
            loops.append((me, *path[: path.index(me)], me))
        elif path and path[-1] in mine:
            loops.append((me, *path, *reversed(mine[path[-1]][:-1]), me))
    return min(loops, key=lambda loop: (len(loop), loop), default=None)


def greatest_link(loop: Path) -> tuple[str, str]:
    """Return the link of a loop that is given up. All brokers on the loop choose the same one.

    >>> greatest_link(("a", "d", "c", "a"))
    ('c', 'd')
    """
    return max((min(pair), max(pair)) for pair in pairwise(loop))


def _check_paths(neighbour: str, paths: tuple[Path, ...]) -> None:
    if len(paths) > MAX_PATHS:
        raise FederationError(f"expected at most {MAX_PATHS:,} brokers behind {neighbour!r}, not {len(paths):,}")
    for path in paths:
        if len(path) > MAX_HOPS:
            raise FederationError(f"expected paths of at most {MAX_HOPS} brokers from {neighbour!r}, not {len(path):,}")
        if path[:1] != (neighbour,) or len(set(path)) < len(path):
            raise FederationError(f"expected paths from {neighbour!r} without repeated names, not {list(path)!r:.120}")
