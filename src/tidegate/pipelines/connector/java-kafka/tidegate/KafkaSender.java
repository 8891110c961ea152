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
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The one producer of this JVM for a cluster.
 *
 * <p>What a service's output has of a source is all up to its last record: nothing may be written behind a record that
 * failed. So the first failure ends the producer with all that it has not sent, and every task that uses it; tasks
 * that start again have another.
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

  /** Waits until all that was given to this JVM's producer is in the log. */
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

  /** Sends a record to a partition by its number, else by a key; {@code arrived} is run when it is in the log. */
  void send(String topic, Integer number, byte[] key, byte[] value, Runnable arrived) throws IOException {
    check();
    if (value.length > RECORD_BYTES) {
      throw new IOException("a record of " + value.length + " bytes; expected at most " + RECORD_BYTES);
    }
    Sent sent = new Sent(arrived);
    try {
      producer.send(new ProducerRecord<>(topic, number, key, value), sent);
    } catch (InterruptException stopped) {
      throw new InterruptedIOException();
    } catch (KafkaException | IllegalStateException problem) {
      throw told(problem);
    }
    if (sent.refused != null) {
      throw told(sent.refused);
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
      throw told(failure);
    }
  }

  private static IOException told(Exception problem) {
    return new IOException("Kafka did not take a record: " + problem.getMessage(), problem);
  }

  private synchronized void fail(Exception problem) {
    if (failure == null) {
      failure = problem;
      OPEN.remove(settings, this);
      Written.forget(settings); // some of it was not; the topics know
      producer.close(Duration.ZERO);
    }
  }

  /** What becomes of a record. */
  private final class Sent implements Callback {
    private final Thread sender = Thread.currentThread();
    private final Runnable arrived;
    /** Why it was refused before it was sent: nothing can be behind it. */
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
