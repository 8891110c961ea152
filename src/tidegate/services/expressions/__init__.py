"""The expression language, which filters share: see `tidegate.expressions`."""

from tidegate.expressions import Expression, evaluate, names, resolve, to_sql

__all__ = ["Expression", "evaluate", "names", "resolve", "to_sql"]
