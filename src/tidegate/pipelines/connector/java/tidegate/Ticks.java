package tidegate;

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;

/**
 * The ticks of one reader, which do not move its offset.
 *
 * <p>In real-time mode there is a row for each state partition every 100 ms, also in silence; the first ones come before
 * the first record. In a micro-batch they come after the last record.
 */
final class Ticks {
  static final long INTERVAL_MS = 100;

  private final int partitions;
  private long due = System.nanoTime();
  private int left;
  private int given;
  private long caughtUp = -1;
  private long told = -1;

  Ticks(int partitions) {
    this.partitions = partitions;
  }

  /** Called when there is nothing left to read. */
  void caughtUp() {
    if (partitions > 0) {
      caughtUp = Metrics.nowMicros();
    }
  }

  /** Returns the milliseconds until the next tick, at most {@code most}. */
  long millisUntilDue(long most) {
    return partitions == 0 ? most : Math.min(most, Math.max(0, (due - System.nanoTime()) / 1_000_000 + 1));
  }

  /** Writes the next tick at the end of a micro-batch; false if there are no more. {@code seen}: nothing was left then. */
  boolean nextOfBatch(GenericInternalRow row, long position, long seen) {
    if (given == partitions) {
      return false;
    }
    write(row, position, given++, seen);
    return true;
  }

  /** Writes the next tick into a row. Returns false if none is due. */
  boolean next(GenericInternalRow row, long position) {
    if (partitions == 0) {
      return false;
    }
    if (left == 0) {
      long nanos = System.nanoTime();
      if (nanos < due) {
        return false;
      }
      due = nanos + INTERVAL_MS * 1_000_000;
      left = partitions;
      told = caughtUp;
      caughtUp = -1;
    }
    left--;
    write(row, position, left, told);
    return true;
  }

  private static void write(GenericInternalRow row, long position, int partition, long caughtUp) {
    row.update(1, position);
    long now = Metrics.nowMicros();
    ReadTime.set(now);
    row.update(2, now);
    row.update(3, null);
    row.update(4, partition);
    row.update(5, caughtUp < 0 ? null : (Object) caughtUp);
  }
}
