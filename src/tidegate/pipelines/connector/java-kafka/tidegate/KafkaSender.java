package tidegate;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The one producer of this JVM for a cluster.
 *
 * <p>An output must have all events of a source up to its last record, so no record may be written after one that
 * failed. The first failure therefore closes the producer with all unsent records, and every task that uses it fails.
 * Restarted tasks have a new producer.
 */
final class KafkaSender {
  private static final Map<String, KafkaSender> OPEN = new ConcurrentHashMap<>();
  private static final int RECORD_BYTES = 1_000_000;

  private final String settings;
  private final KafkaProducer<byte[], byte[]> producer;
  private volatile Exception failure;

  static KafkaSender of(String settings) {
    return OPEN.computeIfAbsent(settings, KafkaSender::new);
  }

  /** Waits until all records that were passed to this JVM's producer are in the log. */
  static void flush(String settings) throws IOException {
    KafkaSender sender = OPEN.get(settings);
    if (sender != null) {
      sender.flush();
    }
  }

  private KafkaSender(String settings) {
    this.settings = settings;
    Map<String, Object> ours =
        Map.of(
            "enable.idempotence", "true",
            "acks", "all",
            "linger.ms", "1",
            "max.block.ms", "15000",
            "request.timeout.ms", "10000",
            "delivery.timeout.ms", "30000");
    producer =
        new KafkaProducer<>(
            KafkaClients.with(settings, ours), new ByteArraySerializer(), new ByteArraySerializer());
  }

  /** Sends a record to a partition, with a key or null. Calls {@code arrived} when it is in the log. */
  void send(TopicPartition to, byte[] key, byte[] value, Runnable arrived) throws IOException {
    check();
    if (value.length > RECORD_BYTES) {
      throw new IOException("a record of " + value.length + " bytes; expected at most " + RECORD_BYTES);
    }
    Sent sent = new Sent(arrived);
    try {
      producer.send(new ProducerRecord<>(to.topic(), to.partition(), key, value), sent);
    } catch (InterruptException stopped) {
      throw new InterruptedIOException();
    } catch (KafkaException | IllegalStateException problem) {
      throw asIoException(problem);
    }
    if (sent.refused != null) {
      throw asIoException(sent.refused);
    }
  }

  void flush() throws IOException {
    try {
      producer.flush();
    } catch (InterruptException stopped) {
      throw new InterruptedIOException();
    }
    check();
  }

  private void check() throws IOException {
    if (failure != null) {
      throw asIoException(failure);
    }
  }

  private static IOException asIoException(Exception problem) {
    return new IOException("Kafka did not take a record: " + problem.getMessage(), problem);
  }

  private synchronized void fail(Exception problem) {
    if (failure == null) {
      failure = problem;
      OPEN.remove(settings, this);
      Written.forget(settings); // some of these keys were not written: read them from the topics again
      producer.close(Duration.ZERO);
    }
  }

  /** The outcome of sending a record. */
  private final class Sent implements Callback {
    private final Thread sender = Thread.currentThread();
    private final Runnable arrived;
    /** Set if the record was refused before it was sent, so that no later record was sent either. */
    private Exception refused;

    Sent(Runnable arrived) {
      this.arrived = arrived;
    }

    @Override
    public void onCompletion(RecordMetadata place, Exception problem) {
      if (problem == null) {
        arrived.run();
      } else if (Thread.currentThread() == sender) {
        refused = problem;
      } else {
        fail(problem);
      }
    }
  }
}
