"""The filter language: one syntax, one tree, three evaluators.

`parser` turns text into a tree (`nodes`), `typing` checks the tree against a schema, and an evaluator applies it:
`evaluate` to one event, `columns` to an Arrow record batch, `tidegate.pipelines.filters` to a Spark DataFrame.
`normalize`, `sets` and `covering` compare filters. Does no I/O and needs neither a JVM nor a server.
"""

from tidegate.filters.constraints import Constraints
from tidegate.filters.filter import Filter

__all__ = ["Constraints", "Filter"]
