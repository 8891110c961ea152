"""The basis of a theme: the documents that are about it (the paper's Algorithm 1).

The basis of a tag is the documents in which *all* its words occur. The basis of a theme is the union over its tags:

    ('land transport', 'noise')   =   (land and transport) or noise

Occurrence decides, not weight: a word that is in every document has weight 0, and by the letter of the algorithm an
empty basis; here its basis is all documents. A theme without a basis does not narrow anything:

- no tags: the whole space
- a tag of stop words only, or with a word that the space does not know: that tag adds no document
- no tag adds a document: the whole space, as without a theme. An unknown tag must not silence a subscription.

No event may take seconds, so only the first `MAX_TAGS` tags in order count, and only the beginning of a long tag.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tidegate.filters.vectors import NumpyArray
from tidegate.semantics.space import Occurrences, Space

MAX_TEXT_CHARS = 1_000
"""Maximum number of characters of a text that count for its meaning; equality compares the whole text."""
MAX_TAGS = 1_000
"""Maximum number of tags of a theme that count."""


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """The documents of a theme."""

    holds: NumpyArray | None
    """For every document of the space, True if it belongs to the basis; None: all do."""
    size: int

    def of(self, occurrences: Occurrences) -> Occurrences:
        """Return the occurrences of a term inside the basis."""
        if self.holds is None:
            return occurrences
        inside = self.holds[occurrences.documents]
        return Occurrences(occurrences.documents[inside], occurrences.counts[inside])


def basis_of(space: Space, themes: Iterable[str]) -> Basis:
    """Return the basis of a theme's tags; the whole space if they have none."""
    holds = np.zeros(space.size, bool)
    for tag in sorted(themes)[:MAX_TAGS]:
        holds[_documents(space, tag[:MAX_TEXT_CHARS])] = True
    size = int(holds.sum())
    return Basis(holds, size) if 0 < size < space.size else Basis(None, space.size)


def _documents(space: Space, tag: str) -> NumpyArray:
    """Return the documents in which all words of a tag occur."""
    words = set(space.words(tag))
    occurrences = [space.occurrences(word) for word in words]
    known = [documents.documents for documents in occurrences if documents is not None]
    if not known or len(known) < len(occurrences):
        return np.empty(0, np.uint32)
    known.sort(key=len)
    common = known[0]
    for documents in known[1:]:
        common = common[np.isin(common, documents, assume_unique=True)]
    return common
