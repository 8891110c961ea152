"""Terms as the mean vector of their word pieces, from a table that is part of a wheel (the extra `embedding`).

Table and tokenizer are WordLlama's: 32,000 word pieces with 256 numbers each, 16 MB that are memory-mapped. Its own
loader is not used: in this release it looks for the tokenizer in the wrong folder, and then on the network. Nothing
here uses the network. `docs/adr/0010-use-an-embedding-in-a-wheel.md` says how it was chosen.

Themes do not change its results, because an embedding has no documents.
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
from tidegate.filters.vectors import NumpyArray
from tidegate.semantics.projection import MAX_TEXT_CHARS
from tidegate.semantics.rules import normal

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_PIECES = "tokenizers/l2_supercat_tokenizer_config.json"
_MAX_CACHED_VECTORS = 50_000
"""Maximum number of cached vectors, a kilobyte each."""
_MAX_CACHED_LISTS = 8
"""Lists of subscribed terms whose vectors are cached as one matrix: names and values of a few themes."""


class Embedding:
    """Relatedness by the cosine of mean vectors. Open the installed one with `Embedding.open`. Not thread-safe."""

    name = "embedding"

    def __init__(self, table: NumpyArray, pieces: Any) -> None:
        self._table = table
        self._pieces = pieces
        self._vectors: LRUCache[str, NumpyArray] = LRUCache(_MAX_CACHED_VECTORS)
        self._subscribed: LRUCache[tuple[str, ...], NumpyArray] = LRUCache(_MAX_CACHED_LISTS)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as a call of `open`: another process maps the table itself."""
        return Embedding.open, ()

    @staticmethod
    def installed() -> bool:
        """Return True if an embedding is installed; loads nothing."""
        return _folder() is not None and find_spec("tokenizers") is not None

    @classmethod
    def open(cls) -> Embedding:
        """Open the installed embedding; takes a tenth of a second. Raises `EnvironmentProblem` if there is none."""
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
    ) -> NumpyArray:
        """Return the cosine, which may be below 0; NaN for a text without word pieces."""
        return np.asarray(self._subscribed_vectors(tuple(subscribed)) @ self.vectors(terms).T)

    def _subscribed_vectors(self, subscribed: tuple[str, ...]) -> NumpyArray:
        """Return the vectors of the subscribed terms; cached, because subscriptions change seldom."""
        vectors = self._subscribed.get(subscribed)
        if vectors is None:
            vectors = self._subscribed[subscribed] = self.vectors(subscribed)
        return vectors

    def vectors(self, texts: Sequence[str]) -> NumpyArray:
        """Return one row of length 1 per text; NaN for a text without word pieces."""
        out = np.empty((len(texts), self._table.shape[1]), np.float32)
        for row, text in zip(out, texts, strict=True):
            row[:] = self._vector(normal(text[:MAX_TEXT_CHARS]))
        return out

    def _vector(self, text: str) -> NumpyArray:
        vector = self._vectors.get(text)
        if vector is None:
            whole = text.encode(errors="replace").decode()  # the tokenizer refuses lone surrogates
            pieces = self._pieces.encode(whole, add_special_tokens=False).ids
            total = self._table[pieces].astype(np.float64).sum(axis=0)
            length = np.sqrt(total @ total)
            mean = total / length if length else np.full_like(total, np.nan)
            vector = self._vectors[text] = mean.astype(np.float32)
        return vector


def _folder() -> Path | None:
    """Return the folder of the wheel's files. Does not import the wheel, which would take a second."""
    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return folder if (folder / _WEIGHTS).is_file() and (folder / _PIECES).is_file() else None


_TYPES = {"F16": "<f2", "F32": "<f4"}


def _mapped(path: Path) -> NumpyArray:
    """Map the single array of a safetensors file: length of the header, header, bytes."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    (array,) = (entry for name, entry in header.items() if name != "__metadata__")
    begin, _ = array["data_offsets"]
    shape = tuple(array["shape"])
    return np.memmap(path, _TYPES[array["dtype"]], "r", 8 + size + begin, shape).view(np.ndarray)
