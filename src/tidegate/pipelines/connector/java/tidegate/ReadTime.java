package tidegate;

import org.apache.spark.sql.api.java.UDF1;

/**
 * When the record that a thread deals with was read, in microseconds; 0: not known.
 *
 * <p>In real-time mode a task hands each row through to its end before it asks for the next, so that reader and writer
 * need no column for it. Before a shuffle this function makes it one, and the state engine sets it again.
 */
public final class ReadTime implements UDF1<Long, Long> {
  private static final long serialVersionUID = 1L;
  private static final ThreadLocal<long[]> CURRENT = ThreadLocal.withInitial(() -> new long[1]);

  static void set(long micros) {
    CURRENT.get()[0] = micros;
  }

  static long get() {
    return CURRENT.get()[0];
  }

  /** The argument only keeps Spark from calling it once for all rows. */
  @Override
  public Long call(Long position) {
    return get();
  }
}
