package tidegate;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongUnaryOperator;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * The last record of a source that an output topic has, read from the topic each time that a task begins to write.
 *
 * <p>An earlier attempt of the task, perhaps in another process, may have written since the query started. What this
 * JVM has seen in this run of the query is not read again.
 */
final class OutputMarks {
  private static final Map<String, OutputMarks> ALL = new ConcurrentHashMap<>();

  private final String run;
  private long end = -1;
  private long[] last;

  private OutputMarks(String run) {
    this.run = run;
  }

  /**
   * Returns position and child of the last record; null if there is none.
   *
   * @param run the run of the query: topics may have been created again between two
   * @param source the name of the source's partition in the output: {@code stream.partition}
   * @param begin returns the offset before which there are no records after `noted`, given the end of the partition
   */
  static long[] last(String settings, String run, TopicPartition output, String source, LongUnaryOperator begin)
      throws IOException {
    String name = settings + "/" + output + "/" + source;
    return ALL.compute(name, (any, known) -> known != null && known.run.equals(run) ? known : new OutputMarks(run))
        .refreshed(settings, output, source, begin);
  }

  private synchronized long[] refreshed(
      String settings, TopicPartition output, String source, LongUnaryOperator begin) throws IOException {
    LongUnaryOperator from = found -> end < 0 ? Math.max(0, begin.applyAsLong(found)) : end;
    end = TopicScan.read(settings, output, from, record -> take(record, source));
    return last == null ? null : last.clone();
  }

  private void take(ConsumerRecord<byte[], byte[]> record, String source) {
    String found = record.value() == null ? null : Repeats.source(record.value());
    int at = found == null ? -1 : found.lastIndexOf(':');
    if (at > 0 && found.substring(0, at).replace('/', '.').equals(source)) {
      long[] place = Repeats.place(found.substring(at + 1));
      if (place != null && (last == null || Repeats.isBehind(last, place))) {
        last = place;
      }
    }
  }
}
