package tidegate;

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;

/**
 * The ticks of one reader in real-time mode: a row for each state partition every 100 ms, also without records.
 *
 * <p>They do not move the reader's offset. The first ones come before the first record.
 */
final class Ticks {
  static final long INTERVAL_MS = 100;

  private final int partitions;
  private long due = System.nanoTime();
  private int left;
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
    row.update(1, position);
    long now = Metrics.nowMicros();
    ReadTime.set(now);
    row.update(2, now);
    row.update(3, null);
    row.update(4, left);
    row.update(5, told < 0 ? null : (Object) told);
    return true;
  }
}
