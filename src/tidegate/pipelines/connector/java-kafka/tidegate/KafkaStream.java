package tidegate;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The driver's side of the source: lists the partitions of a topic and their end offsets. */
final class KafkaStream extends OffsetStream {
  private static final long LOOK_EVERY = TimeUnit.SECONDS.toNanos(1);

  private final CaseInsensitiveStringMap options;
  private final String settings;
  private final String topic;
  private int partitions;
  private long lookDue;

  KafkaStream(CaseInsensitiveStringMap options) {
    super(options.getOrDefault("start", "{}"), options.getInt("ticks", 0));
    this.options = options;
    this.settings = KafkaClients.remembered(options.get("cluster"));
    this.topic = options.get("topic");
  }

  @Override
  Map<String, Long> begins() {
    return offsets(OffsetSpec.earliest());
  }

  @Override
  Map<String, Long> ends() {
    return offsets(OffsetSpec.latest());
  }

  @Override
  InputPartition range(String partition, long begin, long end, long seen) {
    return new PartitionRange(partition, begin, end, seen, settings, options);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Readers();
  }

  /** The description of this source in Spark's progress reports, by which the engine knows it. */
  @Override
  public String toString() {
    return "stream:" + options.getOrDefault("stream", topic);
  }

  private Map<String, Long> offsets(OffsetSpec place) {
    try {
      long now = System.nanoTime();
      if (partitions == 0 || now >= lookDue) {
        partitions = KafkaClients.partitions(settings, topic);
        lookDue = now + LOOK_EVERY;
      }
      return KafkaClients.offsets(settings, topic, partitions, place);
    } catch (IOException problem) {
      throw new UncheckedIOException("the topic " + topic + " can't be read", problem);
    }
  }

  /** The part of a partition that one task reads. */
  static final class PartitionRange implements InputPartition {
    private static final long serialVersionUID = 1L;
    final String settings;
    final String topic;
    final String stream;
    final String partition;
    final long begin;
    final long end;
    final long seen;
    final String service;
    final String group;
    final String outputs;
    final String sources;
    final int ticks;

    PartitionRange(String partition, long begin, long end, long seen, String settings, CaseInsensitiveStringMap options) {
      this.settings = settings;
      this.topic = options.get("topic");
      this.stream = options.getOrDefault("stream", topic);
      this.partition = partition;
      this.begin = begin;
      this.end = end;
      this.seen = seen;
      this.service = options.getOrDefault("service", "");
      this.group = options.getOrDefault("group", "");
      this.outputs = options.getOrDefault("outputs", "");
      this.sources = options.getOrDefault("sources", "");
      this.ticks = options.getInt("ticks", 0);
    }
  }

  private static final class Readers implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition range) {
      return new KafkaReader((PartitionRange) range);
    }
  }
}
