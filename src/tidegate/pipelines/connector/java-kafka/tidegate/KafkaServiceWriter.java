package tidegate;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Utils;
import org.apache.spark.sql.Row;

/**
 * Writes the rows of a service to Kafka topics.
 *
 * <p>A partition whose name is a number is a partition of the topic. Any other name is the key of its records. Rows
 * that are identified by key have no {@code _src}: readers skip records that are not after the last one of their
 * source, but an operator may emit events in another order.
 */
public final class KafkaServiceWriter extends OutputWriter {
  private static final long serialVersionUID = 1L;

  private final String settings;
  private final long sinceMicros;
  private final String floor;
  private final String reached;
  private transient KafkaSender sender;

  /**
   * @param output the topic of the output stream
   * @param quarantine the topic of the quarantine
   * @param identity what identifies a row; see {@link OutputWriter}
   * @param sinceMicros with keys: the time of the last checkpoint; rows that were written later may be repeated
   * @param floor end offsets of the output when this version began; earlier records are those of another version
   * @param reached with positions: the last position of each source, in lines {@code topic stream/partition:position}
   */
  public KafkaServiceWriter(
      String settings,
      String service,
      String output,
      String quarantine,
      String identity,
      long sinceMicros,
      String floor,
      String reached) {
    super(service, output, quarantine, identity);
    this.settings = settings;
    this.sinceMicros = sinceMicros;
    this.floor = floor;
    this.reached = reached;
  }

  /** Waits until the records of a stopped service are acknowledged, and releases its consumers and keys. */
  public static void release(String settings, String service, String topic) {
    try {
      KafkaSender.flush(settings);
    } catch (IOException failed) {
      // the tasks report it; the next writer reads the last positions from the topics
    }
    PartitionConsumer.forget(service);
    Written.forget(settings + "/" + topic);
  }

  @Override
  public boolean open(long partition, long epoch) {
    sender = KafkaSender.of(settings);
    return super.open(partition, epoch);
  }

  @Override
  public void close(Throwable problem) {
    if (problem == null && sender != null) {
      try {
        sender.flush();
      } catch (IOException failed) {
        throw unwritten(failed);
      }
    }
  }

  @Override
  Target target(String topic, String partition) throws IOException {
    if (keyed()) {
      Written.Lines lines = take -> read(topic, partition, take);
      return new Topic(Written.of(settings + "/" + topic, partition, revised(), lines), topic, partition);
    }
    return new Topic(last(topic, partition), topic, partition);
  }

  /** Returns position and child of the last record of an output partition when the service started. */
  private long[] last(String topic, String partition) {
    for (String line : reached.split("\n")) {
      int at = line.lastIndexOf(':');
      if (at > 0 && line.substring(0, at).replace('/', '.').equals(topic + " " + partition)) {
        return Repeats.place(line.substring(at + 1));
      }
    }
    return null;
  }

  /** Reads the records that were written to an output partition since the checkpoint. */
  private void read(String topic, String name, Written.Taker take) throws IOException {
    byte[] key = key(name);
    try (KafkaConsumer<byte[], byte[]> consumer = KafkaClients.consumer(settings, "")) {
      TopicPartition partition = new TopicPartition(topic, number(topic, name));
      long since = Math.max(0, sinceMicros / 1_000);
      OffsetAndTimestamp begin = consumer.offsetsForTimes(Map.of(partition, since)).get(partition);
      if (begin == null) {
        return;
      }
      consumer.assign(List.of(partition));
      long own = LogOffset.fromJson(floor).positions.getOrDefault(Integer.toString(partition.partition()), 0L);
      consumer.seek(partition, Math.max(own, begin.offset()));
      long end = consumer.endOffsets(List.of(partition)).get(partition);
      while (consumer.position(partition) < end) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1)).records(partition)) {
          if (Arrays.equals(record.key(), key) && record.value() != null) {
            take.line(record.value());
          }
        }
      }
    } catch (KafkaException problem) {
      throw new IOException("the topic " + topic + " can't be read: " + problem.getMessage(), problem);
    }
  }

  private int number(String topic, String partition) throws IOException {
    byte[] key = key(partition);
    if (key == null) {
      return Integer.parseInt(partition);
    }
    return Utils.toPositive(Utils.murmur2(key)) % KafkaClients.partitions(settings, topic);
  }

  /** Returns the key of a partition's records; null if its name is a partition number of the topic. */
  private static byte[] key(String partition) {
    boolean number = partition.matches("0|[1-9][0-9]{0,8}");
    return number ? null : partition.getBytes(StandardCharsets.UTF_8);
  }

  private final class Topic extends Target {
    private final String topic;
    private final byte[] key;
    private final Integer number;

    Topic(long[] last, String topic, String partition) {
      super(last);
      this.topic = topic;
      this.key = key(partition);
      this.number = key == null ? Integer.valueOf(partition) : null;
    }

    Topic(Written written, String topic, String partition) {
      super(written);
      this.topic = topic;
      this.key = key(partition);
      this.number = key == null ? Integer.valueOf(partition) : null;
    }

    @Override
    void append(Row row, Runnable written) throws IOException {
      sender.send(topic, number, key, Line.of(row, !keyed(), ""), written);
    }
  }
}
