"""Brings events into raw streams: `http` takes what producers send, `feeds` reads sources such as files and brokers.

Both append through `raw_streams`. No pyspark, starlette or fastapi here: routes of the gateway call `http`, and the
process that runs pipelines starts `feeds`.
"""
