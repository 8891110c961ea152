package tidegate;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;
import java.util.function.LongUnaryOperator;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;

/** Reads a partition of a topic from an offset to its end. Keeps its consumer for the next read: a new one is slow. */
final class TopicScan {
  private static final Map<String, Queue<KafkaConsumer<byte[], byte[]>>> IDLE = new ConcurrentHashMap<>();

  private TopicScan() {}

  /**
   * Passes on the records of a partition and returns the offset after the last one.
   *
   * @param begin returns the first offset to read, given the end of the partition; expired records are left out
   */
  static long read(
      String settings,
      TopicPartition partition,
      LongUnaryOperator begin,
      Consumer<ConsumerRecord<byte[], byte[]>> take)
      throws IOException {
    Queue<KafkaConsumer<byte[], byte[]>> idle =
        IDLE.computeIfAbsent(settings, any -> new ConcurrentLinkedQueue<>());
    KafkaConsumer<byte[], byte[]> consumer = idle.poll();
    boolean done = false;
    try {
      consumer = consumer == null ? KafkaClients.consumer(settings, "") : consumer;
      long end = read(consumer, partition, begin, take);
      done = true;
      return end;
    } catch (InterruptException stopped) {
      throw new InterruptedIOException();
    } catch (KafkaException problem) {
      throw new IOException(partition + " can't be read: " + problem.getMessage(), problem);
    } finally {
      if (done) {
        idle.add(consumer);
      } else if (consumer != null) {
        close(consumer);
      }
    }
  }

  private static long read(
      KafkaConsumer<byte[], byte[]> consumer,
      TopicPartition partition,
      LongUnaryOperator begin,
      Consumer<ConsumerRecord<byte[], byte[]>> take) {
    List<TopicPartition> one = List.of(partition);
    long end = consumer.endOffsets(one).get(partition);
    long from = begin.applyAsLong(end);
    if (from >= end) {
      return end;
    }
    consumer.assign(one);
    consumer.seek(partition, Math.max(from, consumer.beginningOffsets(one).get(partition)));
    while (consumer.position(partition) < end) {
      try {
        consumer.poll(Duration.ofSeconds(1)).records(partition).forEach(take);
      } catch (OffsetOutOfRangeException expired) {
        consumer.seek(partition, consumer.beginningOffsets(one).get(partition));
      }
    }
    return consumer.position(partition);
  }

  private static void close(KafkaConsumer<byte[], byte[]> consumer) {
    try {
      consumer.close(Duration.ZERO);
    } catch (KafkaException ignored) {
      // of a thread that is interrupted: all is let go of nevertheless
    }
  }
}
