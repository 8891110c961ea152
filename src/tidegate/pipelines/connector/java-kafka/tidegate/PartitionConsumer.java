package tidegate;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * A consumer at a position of one partition, with the records that it has fetched. Skips repeated records.
 *
 * <p>A new consumer costs tens of milliseconds, so a task that ends leaves its consumer to the task that continues.
 */
final class PartitionConsumer {
  /** Records before the position that are read only to recognise repeats. */
  private static final long LOOK_BACK = 1_000;
  private static final Duration NOTE_TIMEOUT = Duration.ofSeconds(2);
  private static final Map<String, PartitionConsumer> IDLE = new ConcurrentHashMap<>();

  private final String name;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final TopicPartition partition;
  private final Queue<ConsumerRecord<byte[], byte[]>> fetched = new ArrayDeque<>();
  private final Repeats repeats = new Repeats();
  private long position;
  private long missed;
  private boolean broken;

  /** Returns a consumer at an offset of the partition of a range: an idle one with this position, or else a new one. */
  static PartitionConsumer of(KafkaStream.PartitionRange range, long begin) throws IOException {
    String name = range.service + " " + range.group + " " + range.topic + "/" + range.partition;
    PartitionConsumer idle = IDLE.remove(name);
    if (idle != null && idle.position == begin) {
      return idle;
    }
    if (idle != null) {
      idle.close();
    }
    return new PartitionConsumer(name, range, begin);
  }

  /** Closes the idle consumers of a stopped service. */
  static void forget(String service) {
    for (String name : List.copyOf(IDLE.keySet())) {
      if (name.startsWith(service + " ")) {
        PartitionConsumer idle = IDLE.remove(name);
        if (idle != null) {
          idle.close();
        }
      }
    }
  }

  private PartitionConsumer(String name, KafkaStream.PartitionRange range, long begin) throws IOException {
    this.name = name;
    this.consumer = KafkaClients.consumer(range.settings, range.group);
    this.partition = new TopicPartition(range.topic, Integer.parseInt(range.partition));
    this.position = begin;
    try {
      consumer.assign(List.of(partition));
      skipExpired();
      consumer.seek(partition, Math.max(begin(), position - LOOK_BACK));
    } catch (KafkaException problem) {
      close();
      throw asIoException(problem);
    } catch (IOException problem) {
      close();
      throw problem;
    }
  }

  /** Returns the offset after the last returned record. */
  long position() {
    return position;
  }

  /** Returns the number of records that had expired before they were read. */
  long missed() {
    return missed;
  }

  /** Returns the next record before {@code end}; null at the end, or if none arrives in time. */
  ConsumerRecord<byte[], byte[]> next(long end, long timeoutMillis) throws IOException {
    long deadline = System.nanoTime() + timeoutMillis * 1_000_000;
    while (true) {
      for (ConsumerRecord<byte[], byte[]> record = fetched.peek(); record != null; record = fetched.peek()) {
        if (record.offset() >= end) {
          position = end;
          return null;
        }
        fetched.remove();
        boolean repeated = record.value() == null || repeats.has(record.value());
        if (record.offset() >= position) {
          position = record.offset() + 1;
          if (!repeated) {
            return record;
          }
        }
      }
      long left = (deadline - System.nanoTime()) / 1_000_000;
      try {
        position = Math.max(position, consumer.position(partition)); // skips the markers of transactions
        if (position >= end || left < 0) {
          position = Math.min(position, end);
          return null;
        }
        fetch(left);
      } catch (KafkaException problem) {
        throw asIoException(problem);
      }
      if (left == 0 && fetched.isEmpty()) {
        return null;
      }
    }
  }

  /** True if the broker has reported that there is nothing more to read. An empty poll does not mean that. */
  boolean isCaughtUp() {
    return fetched.isEmpty() && consumer.currentLag(partition).orElse(Long.MAX_VALUE) == 0;
  }

  private void fetch(long timeoutMillis) throws IOException {
    try {
      consumer.poll(Duration.ofMillis(timeoutMillis)).records(partition).forEach(fetched::add);
    } catch (OffsetOutOfRangeException expired) {
      skipExpired();
      consumer.seek(partition, position);
    }
  }

  /**
   * Commits the offset before which all records are processed, and with it the ends of the outputs now. Does nothing if
   * Kafka does not answer soon: the next commit covers it.
   */
  void note(long offset, Collection<TopicPartition> outputs) throws IOException {
    try {
      Map<TopicPartition, Long> ends = consumer.endOffsets(outputs, NOTE_TIMEOUT);
      consumer.commitAsync(Map.of(partition, new SourceNote(offset, ends).stored()), null);
    } catch (TimeoutException away) {
      // the older note stands
    } catch (KafkaException problem) {
      throw asIoException(problem);
    }
  }

  /** Commits the first offset, with offsets of the outputs before all results of this source. Waits for the answer. */
  void noteFirst(Map<TopicPartition, Long> begins) throws IOException {
    try {
      consumer.commitSync(Map.of(partition, new SourceNote(position, begins).stored()));
    } catch (KafkaException problem) {
      throw asIoException(problem);
    }
  }

  /** Returns the ends of partitions of outputs. */
  Map<TopicPartition, Long> ends(Collection<TopicPartition> outputs) throws IOException {
    try {
      return consumer.endOffsets(outputs);
    } catch (KafkaException problem) {
      throw asIoException(problem);
    }
  }

  /** Leaves the consumer to the task that continues at this position. */
  void leave() {
    PartitionConsumer other = broken ? this : IDLE.put(name, this);
    if (other != null) {
      other.close();
    }
  }

  private long begin() {
    return consumer.beginningOffsets(List.of(partition)).get(partition);
  }

  private void skipExpired() throws IOException {
    long begin = begin();
    if (position < begin) {
      missed += begin - position;
      position = begin;
      return;
    }
    long end = consumer.endOffsets(List.of(partition)).get(partition);
    if (position > end) {
      broken = true;
      throw new IOException(
          "offset " + position + " of " + partition + " is beyond its end, " + end + ": the topic is another");
    }
  }

  private IOException asIoException(KafkaException problem) {
    broken = true;
    if (problem instanceof InterruptException) {
      return new InterruptedIOException();
    }
    return new IOException(partition + " can't be read: " + problem.getMessage(), problem);
  }

  private void close() {
    try {
      consumer.close(Duration.ZERO);
    } catch (KafkaException ignored) {
      // the thread was interrupted: the resources are released nevertheless
    }
  }
}
