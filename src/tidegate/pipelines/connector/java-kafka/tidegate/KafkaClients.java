package tidegate;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Clients of a cluster, whose settings are a text of lines {@code key=value}, {@code bootstrap.servers} among them. In
 * a value {@code \n} is a line break and {@code \\} a backslash.
 *
 * <p>A JVM has one of a kind for one such text; a consumer is for one thread, so every place that is read has its own.
 */
public final class KafkaClients {
  private static final ListOffsetsOptions COMMITTED = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
  private static final Map<String, Admin> ADMINS = new ConcurrentHashMap<>();
  private static final Map<String, String> REMEMBERED = new ConcurrentHashMap<>();

  private KafkaClients() {}

  /**
   * Keeps settings, which may hold passwords, in this JVM and gives a name for them. The name may stand in the options
   * of a frame, which Spark shows in plans and logs; tasks are sent the settings themselves.
   */
  public static String remember(String settings) {
    for (Map.Entry<String, String> each : REMEMBERED.entrySet()) {
      if (each.getValue().equals(settings)) {
        return each.getKey();
      }
    }
    String name = "cluster-" + UUID.randomUUID();
    REMEMBERED.put(name, settings);
    return name;
  }

  /** The settings of a name that {@link #remember} gave. */
  static String remembered(String name) {
    String settings = REMEMBERED.get(name);
    if (settings == null) {
      throw new IllegalStateException("no settings of Kafka's clients are known by the name " + name);
    }
    return settings;
  }

  /** How far a service has come in a topic, as its readers noted it, as JSON: an offset for each partition. */
  public static String noted(String settings, String group, String topic) throws IOException {
    Map<TopicPartition, OffsetAndMetadata> said =
        answer(admin(settings).listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
    Map<String, Long> found = new TreeMap<>();
    said.forEach(
        (place, offset) -> {
          if (place.topic().equals(topic) && offset != null) {
            found.put(Integer.toString(place.partition()), offset.offset());
          }
        });
    return new LogOffset(found).json();
  }

  static Map<String, Object> with(String settings, Map<String, Object> ours) {
    Map<String, Object> all = new HashMap<>(ours);
    all.put("enable.metrics.push", "false"); // nobody asks for them, and a producer that ends itself trips over it
    for (String line : settings.split("\n")) {
      int at = line.indexOf('=');
      if (at > 0) {
        all.put(line.substring(0, at), unescaped(line.substring(at + 1)));
      }
    }
    return all;
  }

  private static String unescaped(String value) {
    if (value.indexOf('\\') < 0) {
      return value;
    }
    StringBuilder plain = new StringBuilder(value.length());
    for (int i = 0; i < value.length(); i++) {
      char letter = value.charAt(i);
      if (letter == '\\' && i + 1 < value.length()) {
        letter = value.charAt(++i) == 'n' ? '\n' : value.charAt(i);
      }
      plain.append(letter);
    }
    return plain.toString();
  }

  static Admin admin(String settings) {
    return ADMINS.computeIfAbsent(settings, text -> Admin.create(with(text, Map.of())));
  }

  /** A consumer that stands nowhere yet; {@code group} is where it notes how far it has come, empty: nowhere. */
  static KafkaConsumer<byte[], byte[]> consumer(String settings, String group) {
    Map<String, Object> ours = new HashMap<>();
    ours.put("enable.auto.commit", "false");
    ours.put("auto.offset.reset", "none");
    ours.put("allow.auto.create.topics", "false");
    ours.put("isolation.level", "read_committed");
    ours.put("max.poll.records", "2000");
    if (!group.isEmpty()) {
      ours.put("group.id", group);
    }
    return new KafkaConsumer<>(with(settings, ours), new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  static int partitions(String settings, String topic) throws IOException {
    return answer(admin(settings).describeTopics(List.of(topic)).allTopicNames())
        .get(topic)
        .partitions()
        .size();
  }

  /** An offset of each partition of a topic, by Kafka's number as a text. */
  static Map<String, Long> offsets(String settings, String topic, int partitions, OffsetSpec place)
      throws IOException {
    Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
    for (int n = 0; n < partitions; n++) {
      asked.put(new TopicPartition(topic, n), place);
    }
    Map<TopicPartition, ListOffsetsResultInfo> said = answer(admin(settings).listOffsets(asked, COMMITTED).all());
    Map<String, Long> found = new TreeMap<>();
    said.forEach((each, offset) -> found.put(Integer.toString(each.partition()), offset.offset()));
    return found;
  }

  private static <T> T answer(KafkaFuture<T> asked) throws IOException {
    try {
      return asked.get();
    } catch (InterruptedException stopped) {
      throw new InterruptedIOException();
    } catch (ExecutionException problem) {
      throw new IOException("Kafka does not answer: " + problem.getCause().getMessage(), problem.getCause());
    }
  }
}
