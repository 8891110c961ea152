package tidegate;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.UUID;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.Row;

/**
 * Writes the rows of a service to Kafka topics.
 *
 * <p>A partition whose name is a number is a partition of the topic. Any other name is the key of its records. Rows
 * that are identified by key have no {@code _src}: readers skip records that are not after the last one of their
 * source, but an operator may emit events in another order.
 *
 * <p>A task reads what the topics have when it starts to write, not when the query starts: Spark may run a task again in
 * another process, from where its epoch began.
 */
public final class KafkaServiceWriter extends OutputWriter {
  private static final long serialVersionUID = 1L;

  private final String settings;
  private final String output;
  private final long sinceMicros;
  private final String floor;
  private final String group;
  private final String sources;
  private final String run = UUID.randomUUID().toString();
  private transient KafkaSender sender;
  private transient OutputPlan plan;

  /**
   * @param output the topic of the output stream
   * @param quarantine the topic of the quarantine
   * @param identity what identifies a row; see {@link OutputWriter}
   * @param sinceMicros with keys: the time of the last checkpoint; rows that were written later may be repeated
   * @param floor end offsets of the output when this version began; earlier records are those of another version
   * @param group the consumer group in which readers commit their positions; empty: they do not
   * @param sources the partitions of the inputs; see {@link OutputPlan}
   */
  public KafkaServiceWriter(
      String settings,
      String service,
      String output,
      String quarantine,
      String identity,
      long sinceMicros,
      String floor,
      String group,
      String sources) {
    super(service, output, quarantine, identity);
    this.settings = settings;
    this.output = output;
    this.sinceMicros = sinceMicros;
    this.floor = floor;
    this.group = group;
    this.sources = sources;
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
    plan = null;
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
    sender.flush(); // an earlier attempt in this JVM may have sent records that have not arrived
    if (plan == null) {
      plan = OutputPlan.of(settings, group, sources);
    }
    TopicPartition at = plan.target(topic, partition);
    if (keyed()) {
      byte[] key = key(partition);
      Written.Lines lines = (from, take) -> read(at, key, from, take);
      return new Topic(Written.of(settings + "/" + topic, partition, run, revised(), lines), at, key);
    }
    long[] last = OutputMarks.last(settings, run, at, partition, end -> plan.begin(at, partition, end));
    long noted = plan.noted(partition);
    if (noted > 0 && (last == null || last[0] < noted)) {
      last = new long[] {noted - 1, Long.MAX_VALUE};
    }
    return new Topic(last, at, key(partition));
  }

  /** Reads the records that were written to an output partition from an offset on, or since the checkpoint. */
  private long read(TopicPartition at, byte[] key, long from, Written.Taker take) throws IOException {
    long begin = from;
    if (from == Written.CHECKPOINT) {
      String partition = Integer.toString(at.partition());
      long own = at.topic().equals(output) ? LogOffset.fromJson(floor).positions.getOrDefault(partition, 0L) : 0;
      begin = Math.max(own, KafkaClients.offsetAt(settings, at, Math.max(0, sinceMicros / 1_000)));
    }
    long first = begin;
    return TopicScan.read(
        settings,
        at,
        end -> first,
        record -> {
          if (Arrays.equals(record.key(), key) && record.value() != null) {
            take.line(record.value());
          }
        });
  }

  /** Returns the key of a partition's records; null if its name is a partition number of the topic. */
  static byte[] key(String partition) {
    boolean number = partition.matches("0|[1-9][0-9]{0,8}");
    return number ? null : partition.getBytes(StandardCharsets.UTF_8);
  }

  private final class Topic extends Target {
    private final TopicPartition at;
    private final byte[] key;

    Topic(long[] last, TopicPartition at, byte[] key) {
      super(last);
      this.at = at;
      this.key = key;
    }

    Topic(Written written, TopicPartition at, byte[] key) {
      super(written);
      this.at = at;
      this.key = key;
    }

    @Override
    void append(Row row, Runnable written) throws IOException {
      sender.send(at, key, Line.of(row, !keyed(), ""), written);
    }
  }
}
