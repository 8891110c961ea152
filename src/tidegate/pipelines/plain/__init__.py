"""Reads and writes the embedded log in Spark without the connector: in Python, in micro-batches.

For machines that have neither the compiled connector nor a `javac`. It is slower, and writes the same records as the
connector, so that each can resume where the other ended. Does not run on a cluster or with Kafka.
"""
