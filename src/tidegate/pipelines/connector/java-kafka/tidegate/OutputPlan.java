package tidegate;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Utils;

/**
 * Which partition of an output topic the results of each source partition go to, and where to look for those that were
 * written before.
 *
 * <p>With notes of its readers, the partitions of the inputs are spread over those of the topic by their place in the
 * list, so that each has one of its own if there are enough. A source keeps the partition that its note names: its
 * results must stay in order. Without notes, and where an earlier release wrote the note, Kafka's hash of the name
 * decides.
 */
final class OutputPlan {
  /** How many records before the end are looked at where no note says how many there can be. */
  private static final long LOOK_BACK = 10_000;

  private final String settings;
  private final boolean spread;
  private final Map<String, SourceNote> notes = new HashMap<>();
  private final Map<String, Integer> places = new HashMap<>();

  private OutputPlan(String settings, boolean spread) {
    this.settings = settings;
    this.spread = spread;
  }

  /**
   * Reads the notes of a group.
   *
   * @param group empty: there are no notes
   * @param sources one line {@code topic stream.partition} for each partition of the inputs
   */
  static OutputPlan of(String settings, String group, String sources) throws IOException {
    OutputPlan plan = new OutputPlan(settings, !group.isEmpty());
    Map<TopicPartition, SourceNote> stored = group.isEmpty() ? Map.of() : KafkaClients.notes(settings, group);
    for (String line : sources.split("\n")) {
      int space = line.indexOf(' ');
      if (space > 0) {
        String name = line.substring(space + 1);
        int number = Integer.parseInt(name.substring(name.lastIndexOf('.') + 1));
        SourceNote note = stored.get(new TopicPartition(line.substring(0, space), number));
        plan.places.put(name, plan.places.size());
        if (note != null) {
          plan.notes.put(name, note);
        }
      }
    }
    return plan;
  }

  /** The partition of an output topic for one of its partitions' names, which is Kafka's number or a source. */
  TopicPartition target(String topic, String partition) throws IOException {
    byte[] key = KafkaServiceWriter.key(partition);
    if (key == null) {
      return new TopicPartition(topic, Integer.parseInt(partition));
    }
    SourceNote note = notes.get(partition);
    TopicPartition named = note == null ? null : note.target(topic);
    if (named != null) {
      return named;
    }
    Integer place = places.get(partition);
    boolean isSpread = spread && note == null && place != null;
    int number = isSpread ? place : Utils.toPositive(Utils.murmur2(key));
    return new TopicPartition(topic, number % KafkaClients.partitions(settings, topic));
  }

  /** The partitions of output topics, separated by spaces, that the results of a source go to. */
  Collection<TopicPartition> targets(String topics, String source) throws IOException {
    List<TopicPartition> found = new ArrayList<>();
    for (String topic : topics.split(" ")) {
      found.add(target(topic, source));
    }
    return found;
  }

  boolean hasNote(String source) {
    return notes.containsKey(source);
  }

  /** The offset of an output partition before which there is no record of a source that its note does not cover. */
  long begin(TopicPartition output, String source, long end) {
    SourceNote note = notes.get(source);
    Long noted = note == null ? null : note.ends().get(output);
    return noted == null ? end - LOOK_BACK : noted;
  }

  /** The position before which all of a source was dealt with; 0: none is noted. */
  long noted(String source) {
    SourceNote note = notes.get(source);
    return note == null ? 0 : note.position();
  }
}
