"""Feeds: each reads one source (a generator, files, MQTT, Kafka) and appends to one raw stream.

A feed does not validate events: JSON objects go to the raw stream unchanged, anything else to its quarantine, and the
services that read the stream check the schema. `sources` registers the kinds, `supervisor` runs the feeds.
"""

from tidegate.ingress.feeds.feed import Feed, FeedContext
from tidegate.ingress.feeds.supervisor import Feeds, start_feeds

__all__ = ["Feed", "FeedContext", "Feeds", "start_feeds"]
