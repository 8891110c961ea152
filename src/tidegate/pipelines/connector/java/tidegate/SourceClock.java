package tidegate;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.api.java.UDF6;

/**
 * Follows the event times of one source partition; a column of the source's own task.
 *
 * <p>It sees every record that was parsed, also those that a filter removes later, and returns null for them. For a tick
 * it returns {@code largest time,delay,wall clock of the last record,when everything was read or -1,records}, in
 * microseconds. The delay is the largest recent difference between the time of reading and event time; it decays by a
 * hundredth per record.
 *
 * <p>Spark starts a new task at each checkpoint. It goes on with what the last one knew, unless it reads records again.
 * A task of a micro-batch begins anew, and {@link Watermark} remembers what came before.
 */
public final class SourceClock implements UDF6<String, String, Long, Integer, Long, Long, String> {
  private static final long serialVersionUID = 1L;
  private static final double DECAY = 0.01;
  /**
   * Microseconds between two tasks of one run. After a longer pause the service was started again, perhaps on other
   * executors. On a busy machine Spark takes tens of seconds to start the next task.
   */
  private static final long MAX_PAUSE = 60_000_000;

  /** The values of a source partition of a service. */
  private static final class Known {
    long position = Long.MIN_VALUE;
    long largest = Long.MIN_VALUE;
    double delay = -1;
    long last;
    long called;
    long records;

    Known(long now) {
      last = now;
    }

    /** True if a task that begins at a position continues where the last one ended. */
    boolean isBefore(long position, long now) {
      return this.position <= position && now - called < MAX_PAUSE;
    }
  }

  private static final Map<String, Known> ALL = new ConcurrentHashMap<>();

  private transient Known known;

  /**
   * {@code service} is empty in micro-batches; {@code tick} is null for a record; {@code time} is null if the record
   * can't be read.
   */
  @Override
  public String call(String service, String source, Long position, Integer tick, Long caughtUp, Long time) {
    long now = Metrics.nowMicros();
    if (known == null) {
      known = service.isEmpty() ? new Known(now) : ALL.compute(
          service + "/" + source,
          (name, last) -> last != null && last.isBefore(position, now) ? last : new Known(now));
    }
    known.position = position;
    known.called = now;
    if (tick != null) {
      return known.largest + "," + (long) known.delay + "," + known.last + ","
          + (caughtUp == null ? -1 : caughtUp) + "," + known.records;
    }
    if (time != null) {
      known.records++;
      known.largest = Math.max(known.largest, time);
      known.last = now;
      // Not the time of arrival: a broker may have delivered the record much later.
      double own = Math.max(0, now - time);
      known.delay = known.delay < 0 ? own : Math.max(own, known.delay - (known.delay - own) * DECAY);
    }
    return null;
  }

  /** Deletes the values of a removed service. */
  static void forget(String service) {
    ALL.keySet().removeIf(name -> name.startsWith(service + "/"));
  }
}
