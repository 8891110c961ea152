"""Operators with state in real-time mode: each prepares columns, adds a stage of the state engine, reads its result.

The state engine is the connector's `KeyedProcessor`. Keys, conditions, arguments and results are Spark columns before
and after it; the engine gets a plan as data. Nothing here runs in micro-batches.
"""
