package tidegate;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;

/** The driver's side of a source whose partitions have one offset each. */
abstract class OffsetStream implements MicroBatchStream, SupportsRealTimeMode {
  /** How long after a micro-batch the ticks of a silent stream make another one. */
  private static final long SILENT_BATCH_MICROS = 500_000;

  private final LogOffset start;
  private final int ticks;
  private LogOffset latest = new LogOffset(Map.of());

  /** {@code ticks} is how many state partitions get ticks. */
  OffsetStream(String start, int ticks) {
    this.start = LogOffset.fromJson(start);
    this.ticks = ticks;
  }

  /** Returns the offset of the oldest record of each existing partition. */
  abstract Map<String, Long> begins();

  /** Returns the offset after the newest complete record of each partition. */
  abstract Map<String, Long> ends();

  /** Returns the part of a partition that a task reads. {@code seen}: when a micro-batch had all of it; -1: it is not known. */
  abstract InputPartition range(String partition, long begin, long end, long seen);

  @Override
  public final Offset initialOffset() {
    Map<String, Long> found = begins();
    found.replaceAll((name, begin) -> start.positions.getOrDefault(name, begin));
    return new LogOffset(found);
  }

  @Override
  public final Offset latestOffset() {
    Map<String, Long> found = ends();
    found.replaceAll((name, end) -> Math.max(end, start.positions.getOrDefault(name, 0L)));
    if (ticks == 0) {
      return new LogOffset(found);
    }
    // Spark makes a batch if the offset is another one.
    long now = Metrics.nowMicros();
    if (!latest.positions.equals(found) || now - latest.seen >= SILENT_BATCH_MICROS) {
      latest = new LogOffset(found, now);
    }
    return latest;
  }

  @Override
  public final Offset deserializeOffset(String json) {
    return LogOffset.fromJson(json);
  }

  @Override
  public final InputPartition[] planInputPartitions(Offset from, Offset to) {
    return plan((LogOffset) from, (LogOffset) to, ((LogOffset) initialOffset()).positions);
  }

  @Override
  public final InputPartition[] planInputPartitions(Offset from) {
    Map<String, Long> begins = ((LogOffset) initialOffset()).positions;
    LogOffset open = new LogOffset(begins);
    open.positions.replaceAll((name, position) -> Long.MAX_VALUE);
    return plan((LogOffset) from, open, begins);
  }

  /** Returns where to read a partition. One that is not in {@code from} is read from its start offset. */
  private InputPartition[] plan(LogOffset from, LogOffset to, Map<String, Long> begins) {
    return to.positions.entrySet().stream()
        .filter(each -> ticks > 0 || beginOf(each.getKey(), from, begins) < each.getValue())
        .map(each -> range(each.getKey(), beginOf(each.getKey(), from, begins), each.getValue(), to.seen))
        .toArray(InputPartition[]::new);
  }

  private static long beginOf(String partition, LogOffset from, Map<String, Long> begins) {
    return from.positions.getOrDefault(partition, begins.getOrDefault(partition, 0L));
  }

  @Override
  public final Offset mergeOffsets(PartitionOffset[] reached) {
    Map<String, Long> positions = new TreeMap<>();
    for (PartitionOffset each : reached) {
      Reached one = (Reached) each;
      positions.put(one.partition, one.position);
    }
    return new LogOffset(positions);
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  /** The position of a reader. */
  static final class Reached implements PartitionOffset {
    private static final long serialVersionUID = 1L;
    final String partition;
    final long position;

    Reached(String partition, long position) {
      this.partition = partition;
      this.position = position;
    }
  }
}
