"""The operators of a pipeline: one module each, with its declaration, reading, writing and schema inference.

`registry.DECLARATIONS` lists them. Nothing here runs a pipeline: `pipelines/operators` has the Spark side.
"""

from tidegate.services.operators.aggregate import Aggregate, Emit
from tidegate.services.operators.aggregations import AggregateFunction, Aggregation
from tidegate.services.operators.branches import Branch
from tidegate.services.operators.custom import Custom
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.deduplicate import Deduplicate
from tidegate.services.operators.enrich import Enrich
from tidegate.services.operators.filter import FilterOperator
from tidegate.services.operators.incremental import Incremental
from tidegate.services.operators.join import Join, JoinKind
from tidegate.services.operators.lookup import Lookup
from tidegate.services.operators.merge import Merge
from tidegate.services.operators.pattern import PatternOperator, PatternStep
from tidegate.services.operators.previous import Previous
from tidegate.services.operators.project import Computed, Project
from tidegate.services.operators.registry import WORDS, Operator, streams_read
from tidegate.services.operators.sort import Sort, SortKey
from tidegate.services.operators.windows import CountWindow, SessionWindow, TimeWindow, Window
from tidegate.services.tables import Table

__all__ = [
    "WORDS",
    "Aggregate",
    "AggregateFunction",
    "Aggregation",
    "Branch",
    "Computed",
    "CountWindow",
    "Custom",
    "Declaration",
    "Deduplicate",
    "Emit",
    "Enrich",
    "FilterOperator",
    "Incremental",
    "Join",
    "JoinKind",
    "Lookup",
    "Merge",
    "Operator",
    "OperatorInputs",
    "PatternOperator",
    "PatternStep",
    "Previous",
    "Project",
    "SessionWindow",
    "Sort",
    "SortKey",
    "Table",
    "TimeWindow",
    "Window",
    "streams_read",
]
