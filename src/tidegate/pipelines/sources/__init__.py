"""What feeds raw streams: built-in generators, files, MQTT and Kafka.

A feed only appends: it knows nothing of Spark, and checks no schema. What is not
even a JSON object goes to the stream's quarantine; the rest is Spark's to judge.
"""

from tidegate.pipelines.sources.feed import Feed, Feeds, start_feeds

__all__ = ["Feed", "Feeds", "start_feeds"]
