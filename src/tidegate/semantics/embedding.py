"""Terms as the mean of the vectors of their pieces: a table that comes inside a wheel (the extra `embedding`).

The table and the pieces are WordLlama's: 32,000 pieces of words, 256 numbers each, 16 MB that are mapped, not read.
Its own loader is left aside: in this release it looks for the pieces in a folder they are not in, and then on the
network. Here nothing ever asks the network. How it was chosen: `docs/adr/0010-an-embedding-in-a-wheel.md`.

A table knows no documents, so themes do not change its figures.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from cachetools import LRUCache

from tidegate.errors import EnvironmentProblem
from tidegate.semantics.projection import LONGEST
from tidegate.semantics.rules import normal
from tidegate.semantics.storage import Array

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_PIECES = "tokenizers/l2_supercat_tokenizer_config.json"
_MAX_CACHED_VECTORS = 50_000
"""Terms whose vectors are cached, a kilobyte each."""
_MAX_CACHED_LISTS = 8
"""Lists of subscribed terms whose vectors are cached as one matrix: names and values of a few themes."""


class Embedding:
    """Figures by the angle between mean vectors; open the installed one with `Embedding.open`."""

    name = "embedding"

    def __init__(self, table: Array, pieces: Any) -> None:
        self._table = table
        self._pieces = pieces
        self._vectors: LRUCache[str, Array] = LRUCache(_MAX_CACHED_VECTORS)
        self._subscribed: LRUCache[tuple[str, ...], Array] = LRUCache(_MAX_CACHED_LISTS)

    def __reduce__(self) -> tuple[object, ...]:
        """A process that is handed one opens its own: the table is mapped, and is not sent."""
        return Embedding.open, ()

    @staticmethod
    def installed() -> bool:
        """Whether there is one; nothing of it is loaded."""
        return _folder() is not None and find_spec("tokenizers") is not None

    @classmethod
    def open(cls) -> Embedding:
        """The installed one, in a tenth of a second; raise `EnvironmentProblem` where there is none."""
        folder = _folder()
        if folder is None or not cls.installed():
            raise EnvironmentProblem("no embedding is installed: pip install 'tidegate[embedding]'")
        from tokenizers import Tokenizer

        try:
            return cls(_mapped(folder / _WEIGHTS), Tokenizer.from_file(str(folder / _PIECES)))
        except (OSError, ValueError, KeyError) as exc:
            raise EnvironmentProblem(f"the embedding in {folder} can't be read: {exc}") from exc

    def figures(
        self,
        subscribed: Sequence[str],
        terms: Sequence[str],
        themes: Collection[str] = (),  # noqa: ARG002 - of the protocol
        event_themes: Collection[str] = (),  # noqa: ARG002 - of the protocol
    ) -> Array:
        """The cosine, which may be below 0; NaN with a text of no pieces."""
        return np.asarray(self._asked(tuple(subscribed)) @ self.vectors(terms).T)

    def _asked(self, subscribed: tuple[str, ...]) -> Array:
        """The vectors of what is subscribed to. The last are kept: subscriptions change seldom, events always."""
        vectors = self._subscribed.get(subscribed)
        if vectors is None:
            vectors = self._subscribed[subscribed] = self.vectors(subscribed)
        return vectors

    def vectors(self, texts: Sequence[str]) -> Array:
        """A row a text, of length 1; NaN where it has no pieces."""
        out = np.empty((len(texts), self._table.shape[1]), np.float32)
        for row, text in zip(out, texts, strict=True):
            row[:] = self._vector(normal(text[:LONGEST]))
        return out

    def _vector(self, text: str) -> Array:
        vector = self._vectors.get(text)
        if vector is None:
            whole = text.encode(errors="replace").decode()  # half a character is none that pieces are made of
            pieces = self._pieces.encode(whole, add_special_tokens=False).ids
            total = self._table[pieces].astype(np.float64).sum(axis=0)
            length = np.sqrt(total @ total)
            mean = total / length if length else np.full_like(total, np.nan)
            vector = self._vectors[text] = mean.astype(np.float32)
        return vector


def _folder() -> Path | None:
    """Where the wheel's files are. It is not imported: that takes a second, and loads what is not needed."""
    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return folder if (folder / _WEIGHTS).is_file() and (folder / _PIECES).is_file() else None


_TYPES = {"F16": "<f2", "F32": "<f4"}


def _mapped(path: Path) -> Array:
    """The one array of a safetensors file: the length of a header, the header, the bytes."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    (array,) = (each for name, each in header.items() if name != "__metadata__")
    begin, _ = array["data_offsets"]
    shape = tuple(array["shape"])
    return np.memmap(path, _TYPES[array["dtype"]], "r", 8 + size + begin, shape).view(np.ndarray)
