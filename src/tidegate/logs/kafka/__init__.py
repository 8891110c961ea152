"""The log on Kafka: a topic per stream, one JSON object per record.

*Partitions.* Kafka numbers its partitions; ours have names. A name that is a number, as in raw streams, is Kafka's
partition number. Any other name, as in output streams ("gps_taxi_a.0"), is the key of its records: the hash of the key
(murmur2, as in Java and Spark) chooses the number. So records of one name stay in order, names are stored nowhere, and
a keyed partition need not be created before it is written to. Cursors, gaps and places of records use Kafka's numbers.
A topic that was created for keys never gets more partitions when keys are added, since that would move every key.

*Generation.* The id of the topic: a topic that is deleted and created again has another. It is read at most every
`check_s` seconds, so readers in other processes notice a new generation, or new partitions, within that time.

*Appending.* One idempotent producer, acknowledged by all in-sync replicas before `append` returns: each record once,
in order. "All or none" holds for records that are refused before they are sent (not an object, too long, unknown
partition). If the cluster fails during an append, some of the records may be stored although `append` raises;
appending them again stores those twice.

*Repeats.* Spark may write a record again after a failure. Readers skip such records by the marks in their cursor
(`marks.py`). A cursor that was not reached by reading (`end`, `since`) has no marks yet: the first repeat after it may
be delivered.

*Retention.* Kafka's own: `expire` sets it on the topic and frees nothing itself.
"""

from tidegate.logs.kafka.log import KafkaLog
from tidegate.logs.kafka.topics import generation_of

__all__ = ["KafkaLog", "generation_of"]
