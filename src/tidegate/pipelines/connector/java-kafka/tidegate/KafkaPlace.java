package tidegate;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;

/**
 * A consumer that stands somewhere in a partition of a topic, what it has fetched, and which repeats it has seen.
 *
 * <p>A new consumer costs tens of milliseconds, so a task leaves its own to the task that goes on where it ended.
 */
final class KafkaPlace {
  /** How many records before its place are read only to know what a repeat is. */
  private static final long LOOK_BACK = 1_000;
  private static final Map<String, KafkaPlace> IDLE = new ConcurrentHashMap<>();

  private final String name;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final TopicPartition partition;
  private final Queue<ConsumerRecord<byte[], byte[]>> fetched = new ArrayDeque<>();
  private final Repeats repeats = new Repeats();
  private long position;
  private long missed;
  private boolean broken;

  /** Stands where a piece begins; the one that idles there already, if any. */
  static KafkaPlace of(KafkaStream.Piece piece) throws IOException {
    String name = piece.service + " " + piece.group + " " + piece.topic + "/" + piece.partition;
    KafkaPlace idle = IDLE.remove(name);
    if (idle != null && idle.position == piece.begin) {
      return idle;
    }
    if (idle != null) {
      idle.close();
    }
    return new KafkaPlace(name, piece);
  }

  /** Closes what idles of a service that was stopped. */
  static void forget(String service) {
    for (String name : List.copyOf(IDLE.keySet())) {
      if (name.startsWith(service + " ")) {
        KafkaPlace idle = IDLE.remove(name);
        if (idle != null) {
          idle.close();
        }
      }
    }
  }

  private KafkaPlace(String name, KafkaStream.Piece piece) throws IOException {
    this.name = name;
    this.consumer = KafkaClients.consumer(piece.settings, piece.group);
    this.partition = new TopicPartition(piece.topic, Integer.parseInt(piece.partition));
    this.position = piece.begin;
    try {
      consumer.assign(List.of(partition));
      skipExpired();
      consumer.seek(partition, Math.max(begin(), position - LOOK_BACK));
    } catch (KafkaException problem) {
      close();
      throw told(problem);
    } catch (IOException problem) {
      close();
      throw problem;
    }
  }

  /** The offset behind all that was given. */
  long position() {
    return position;
  }

  /** Records that had expired before they were read. */
  long missed() {
    return missed;
  }

  /** The next record before {@code end}; null where none comes in time, or the end is reached. */
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
        position = Math.max(position, consumer.position(partition)); // behind marks of transactions, too
        if (position >= end || left < 0) {
          position = Math.min(position, end);
          return null;
        }
        fetch(left);
      } catch (KafkaException problem) {
        throw told(problem);
      }
      if (left == 0 && fetched.isEmpty()) {
        return null;
      }
    }
  }

  /** Whether the broker has said that there is nothing more to read. That a poll finds nothing does not say so. */
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

  /** Notes that all before an offset was dealt with; where that fails the next note tells. */
  void note(long offset) throws IOException {
    try {
      consumer.commitAsync(Map.of(partition, new OffsetAndMetadata(offset)), null);
    } catch (KafkaException problem) {
      throw told(problem);
    }
  }

  /** Leaves it to whoever goes on here. */
  void leave() {
    KafkaPlace other = broken ? this : IDLE.put(name, this);
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

  private IOException told(KafkaException problem) {
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
      // of a thread that is interrupted: all is let go of nevertheless
    }
  }
}
