"""What words mean, by the documents they occur in; and which event means what a filter asks for.

Reads and writes the folder of a space, and nothing else. Knows neither Spark nor HTTP.
Without a space or an installed embedding nothing here guesses: the language alone is exact.
"""

from tidegate.semantics.competition import Best
from tidegate.semantics.default import both, default_semantics, embedding_only, esa_only
from tidegate.semantics.embedding import Embedding
from tidegate.semantics.measures import Alone, Esa, Semantics, paper
from tidegate.semantics.relatedness import CosineEsa, Measure, PaperEsa, Relatedness
from tidegate.semantics.space import Space

__all__ = [
    "Alone",
    "Best",
    "CosineEsa",
    "Embedding",
    "Esa",
    "Measure",
    "PaperEsa",
    "Relatedness",
    "Semantics",
    "Space",
    "both",
    "default_semantics",
    "embedding_only",
    "esa_only",
    "paper",
]
