"""A theme as the documents that are about it, and a word as it occurs in them (the paper's Algorithm 1).

A tag's basis are the documents in which *all* its words occur; a theme's are those of any of its tags:

    ('land transport', 'noise')   =   (land and transport) or noise

Occurrence decides, not weight: a word that is in every document has weight 0 there, and by the letter of the
algorithm an empty basis; here it is in all of them. What has no basis does not narrow anything:

- no tags: the whole space
- a tag of nothing but common words, or with a word the space does not know: that tag adds no document
- no tag adds a document: the whole space, as without a theme. An unknown tag must not silence a subscription.

No event may take seconds: of very many tags the first `MOST_TAGS` in order count, of a long one its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tidegate.semantics.space import Occurrences, Space
from tidegate.semantics.storage import Array

LONGEST = 1_000
"""Characters of a text that mean something: beyond, it is told from others by what it is, not by what it means."""
MOST_TAGS = 1_000
"""Tags of a theme that count."""


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """The documents of a theme."""

    holds: Array | None
    """Of every document of the space, whether it belongs; None: all do."""
    size: int

    def of(self, found: Occurrences) -> Occurrences:
        """What is left of a term's occurrences."""
        if self.holds is None:
            return found
        kept = self.holds[found.documents]
        return Occurrences(found.documents[kept], found.counts[kept])


def basis_of(space: Space, themes: Iterable[str]) -> Basis:
    """The basis of a theme's tags; the whole space where they have none."""
    holds = np.zeros(space.size, bool)
    for tag in sorted(themes)[:MOST_TAGS]:
        holds[_documents(space, tag[:LONGEST])] = True
    size = int(holds.sum())
    return Basis(holds, size) if 0 < size < space.size else Basis(None, space.size)


def _documents(space: Space, tag: str) -> Array:
    """The documents in which all words of a tag occur."""
    words = set(space.words(tag))
    found = [space.occurrences(word) for word in words]
    known = [each.documents for each in found if each is not None]
    if not known or len(known) < len(found):
        return np.empty(0, np.uint32)
    known.sort(key=len)
    common = known[0]
    for each in known[1:]:
        common = common[np.isin(common, each, assume_unique=True)]
    return common
