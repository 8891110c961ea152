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
 * Creates Kafka clients. Settings are a text of lines {@code key=value}, with {@code bootstrap.servers}. In a value
 * {@code \n} is a line break and {@code \\} a backslash.
 *
 * <p>A JVM has one admin client and one producer per text of settings. A consumer is for one thread, so each partition
 * that is read has its own.
 */
public final class KafkaClients {
  private static final ListOffsetsOptions COMMITTED = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
  private static final Map<String, Admin> ADMINS = new ConcurrentHashMap<>();
  private static final Map<String, String> REMEMBERED = new ConcurrentHashMap<>();

  private KafkaClients() {}

  /**
   * Stores settings, which may contain passwords, in this JVM, and returns a name for them. The name is used in the
   * options of a frame, which Spark shows in plans and logs. Tasks get the settings themselves.
   */
  public static String remember(String settings) {
    for (Map.Entry<String, String> entry : REMEMBERED.entrySet()) {
      if (entry.getValue().equals(settings)) {
        return entry.getKey();
      }
    }
    String name = "cluster-" + UUID.randomUUID();
    REMEMBERED.put(name, settings);
    return name;
  }

  /** Returns the settings of a name that {@link #remember} has returned. */
  static String remembered(String name) {
    String settings = REMEMBERED.get(name);
    if (settings == null) {
      throw new IllegalStateException("no settings of Kafka's clients are known by the name " + name);
    }
    return settings;
  }

  /** Returns the offsets that the readers of a service have committed for a topic, as JSON: offset by partition. */
  public static String noted(String settings, String group, String topic) throws IOException {
    Map<TopicPartition, OffsetAndMetadata> committed =
        answer(admin(settings).listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
    Map<String, Long> offsets = new TreeMap<>();
    committed.forEach(
        (place, offset) -> {
          if (place.topic().equals(topic) && offset != null) {
            offsets.put(Integer.toString(place.partition()), offset.offset());
          }
        });
    return new LogOffset(offsets).json();
  }

  /** How far a service has come in each partition of its sources, as its readers noted it. */
  static Map<TopicPartition, SourceNote> notes(String settings, String group) throws IOException {
    Map<TopicPartition, SourceNote> notes = new HashMap<>();
    answer(admin(settings).listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
        .forEach(
            (place, stored) -> {
              if (stored != null) {
                notes.put(place, SourceNote.of(stored));
              }
            });
    return notes;
  }

  /** The offset of the first record of a partition that was appended at a time or later; its end if there is none. */
  static long offsetAt(String settings, TopicPartition partition, long millis) throws IOException {
    Map<TopicPartition, OffsetSpec> asked = Map.of(partition, OffsetSpec.forTimestamp(millis));
    long offset = answer(admin(settings).listOffsets(asked, COMMITTED).all()).get(partition).offset();
    return offset >= 0 ? offset : Long.MAX_VALUE;
  }

  static Map<String, Object> with(String settings, Map<String, Object> ours) {
    Map<String, Object> all = new HashMap<>(ours);
    all.put("enable.metrics.push", "false"); // they are not used, and raise an error in a producer that closes itself
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

  /** Returns a consumer without a position. {@code group} is the group that it commits offsets to; empty: none. */
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

  /** Returns an offset of each partition of a topic, by partition number as text. */
  static Map<String, Long> offsets(String settings, String topic, int partitions, OffsetSpec place)
      throws IOException {
    Map<TopicPartition, OffsetSpec> request = new HashMap<>();
    for (int n = 0; n < partitions; n++) {
      request.put(new TopicPartition(topic, n), place);
    }
    Map<TopicPartition, ListOffsetsResultInfo> response =
        answer(admin(settings).listOffsets(request, COMMITTED).all());
    Map<String, Long> offsets = new TreeMap<>();
    response.forEach((partition, offset) -> offsets.put(Integer.toString(partition.partition()), offset.offset()));
    return offsets;
  }

  private static <T> T answer(KafkaFuture<T> request) throws IOException {
    try {
      return request.get();
    } catch (InterruptedException stopped) {
      throw new InterruptedIOException();
    } catch (ExecutionException problem) {
      throw new IOException("Kafka does not answer: " + problem.getCause().getMessage(), problem.getCause());
    }
  }
}
