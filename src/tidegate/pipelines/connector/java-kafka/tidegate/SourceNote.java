package tidegate;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * How far a service has come in one partition of a source. Its reader stores it as an offset of a consumer group.
 *
 * <p>All records before {@code position} are dealt with, and what was made of them is in the output topics before
 * {@code ends}. So whoever goes on finds all later results behind {@code ends}. The topics' partitions are those that
 * results of this source go to; they stay the same as long as there is a note.
 */
record SourceNote(long position, Map<TopicPartition, Long> ends) {

  /** Reads an offset of a group; without ends where an earlier release stored it. */
  static SourceNote of(OffsetAndMetadata stored) {
    Map<TopicPartition, Long> ends = new HashMap<>();
    for (String entry : stored.metadata().split(" ")) {
      int slash = entry.lastIndexOf('/');
      int equals = entry.lastIndexOf('=');
      if (0 < slash && slash < equals) {
        int number = Integer.parseInt(entry.substring(slash + 1, equals));
        ends.put(new TopicPartition(entry.substring(0, slash), number), Long.valueOf(entry.substring(equals + 1)));
      }
    }
    return new SourceNote(stored.offset(), ends);
  }

  OffsetAndMetadata stored() {
    StringBuilder text = new StringBuilder();
    ends.forEach(
        (each, end) ->
            text.append(text.isEmpty() ? "" : " ").append(each.topic()).append('/').append(each.partition())
                .append('=').append(end));
    return new OffsetAndMetadata(position, text.toString());
  }

  /** The partition of an output topic that results go to; null where the note names none. */
  TopicPartition target(String topic) {
    return ends.keySet().stream().filter(each -> each.topic().equals(topic)).findAny().orElse(null);
  }
}
