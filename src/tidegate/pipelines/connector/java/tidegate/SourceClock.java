package tidegate;

import org.apache.spark.sql.api.java.UDF4;

/**
 * Follows the event times of one source partition; a column of the source's own task.
 *
 * <p>It sees every record that was parsed, also those that a filter removes later, and returns null for them. For a tick
 * it returns {@code largest time,delay,wall clock of the last record,when everything was read or -1,records}, in
 * microseconds. The delay is the largest recent difference between arrival and event time; it decays by a hundredth per
 * record. A task of a micro-batch begins anew; there {@link Watermark} remembers what came before.
 */
public final class SourceClock implements UDF4<Integer, Long, Long, Long, String> {
  private static final long serialVersionUID = 1L;
  private static final double DECAY = 0.01;

  private transient boolean begun;
  private transient long largest;
  private transient double delay;
  private transient long last;
  private transient long records;

  /** {@code tick} is null for a record; {@code time} is null if the record can't be read. */
  @Override
  public String call(Integer tick, Long caughtUp, Long time, Long arrived) {
    if (!begun) {
      begun = true;
      largest = Long.MIN_VALUE;
      delay = -1;
      last = Metrics.nowMicros();
    }
    if (tick != null) {
      return largest + "," + (long) delay + "," + last + "," + (caughtUp == null ? -1 : caughtUp) + "," + records;
    }
    if (time != null) {
      records++;
      largest = Math.max(largest, time);
      last = Metrics.nowMicros();
      double own = Math.max(0, arrived - time);
      delay = delay < 0 ? own : Math.max(own, delay - (delay - own) * DECAY);
    }
    return null;
  }
}
