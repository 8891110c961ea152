"""The embedded log in Spark without the connector: Python alone, in micro-batches.

For a machine that has neither the compiled connector nor a `javac`. Records are
those that the connector would write, so that either goes on where the other
ended; only slower. Nothing here runs on a cluster or over Kafka.
"""
