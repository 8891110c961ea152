"""Operators with state: each prepares columns, adds a stage of the state engine, reads its result.

The state engine is the connector's `KeyedProcessor`, in real-time mode and in micro-batches; without the connector it
is `plain.state`. Keys, conditions, arguments and results are Spark columns before and after it; the engine gets a plan
as data.
"""
