"""The filter language: one syntax, one tree, three evaluators.

Text becomes a tree (`tokens`, `parser`, `nodes`), is fitted to a schema
(`typing`), and is then evaluated on one event (`evaluate`), on an Arrow record
batch (`columns`) or, in `tidegate.pipelines`, as a Spark column. `normalize`,
`sets` and `covering` say what a filter means. No I/O, no JVM, no server.
"""

from tidegate.filters.constraints import Constraints
from tidegate.filters.filter import Filter

__all__ = ["Constraints", "Filter"]
