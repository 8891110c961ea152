"""The state engine without the connector: the shapes of state in plain Python, run by PySpark's `transformWithState`.

It takes the plans that `stateful.stage` writes, and gives the rows that the connector's `KeyedProcessor` gives. Only
`processor` and `clock` import Spark. The state of a key is a JSON object.
"""
