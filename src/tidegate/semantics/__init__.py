"""What words mean, by the documents they occur in; and which event means what a filter asks for.

Reads and writes the folder of a space, and nothing else. Knows neither Spark nor HTTP.
Without a space nothing here guesses: the language alone is exact.
"""

from tidegate.semantics.relatedness import CosineEsa, Measure, PaperEsa, Relatedness
from tidegate.semantics.space import Space

__all__ = ["CosineEsa", "Measure", "PaperEsa", "Relatedness", "Space"]
