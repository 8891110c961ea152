"""How related words are, by the documents that they occur in or by an embedding.

Reads and writes the folder of a semantic space, and nothing else. Knows neither Spark nor HTTP. Without a space or an
installed embedding, filters with ~ can't be evaluated: nothing here guesses.
"""

from tidegate.semantics.competition import Best
from tidegate.semantics.default import both, default_semantics, embedding_only, esa_only
from tidegate.semantics.embedding import Embedding
from tidegate.semantics.measures import Alone, Esa, NamedSemantics, paper
from tidegate.semantics.relatedness import CosineEsa, Measure, PaperEsa, Relatedness
from tidegate.semantics.space import Space

__all__ = [
    "Alone",
    "Best",
    "CosineEsa",
    "Embedding",
    "Esa",
    "Measure",
    "NamedSemantics",
    "PaperEsa",
    "Relatedness",
    "Space",
    "both",
    "default_semantics",
    "embedding_only",
    "esa_only",
    "paper",
]
