package tidegate;

import java.time.Instant;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;

/** One kind of state: its content for a key, and its reaction to records and timers. */
abstract class StateShape {
  final StatePlan plan;
  KeyedProcessor processor;

  StateShape(StatePlan plan) {
    this.plan = plan;
  }

  static StateShape of(StatePlan plan, StatefulProcessorHandle handle) {
    switch (plan.shape) {
      case "windows":
        return new WindowShape(plan, handle);
      case "count":
        return new CountShape(plan, handle);
      case "join":
        return new JoinShape(plan, handle);
      case "tuple_join":
        return new TupleJoinShape(plan, handle);
      case "latest":
      case "previous":
      case "distinct":
        return new LatestShape(plan, handle);
      case "pattern":
        return new PatternShape(plan, handle);
      default:
        throw new IllegalArgumentException("unknown shape of state: " + plan.shape);
    }
  }

  void begin(KeyedProcessor processor) {
    this.processor = processor;
  }

  /** Called for each record, in order of arrival. The state of its key is selected. */
  abstract void take(StateRecord record);

  /** Called when the watermark has passed a timer of the key. The state of the key is selected. */
  void due(String key) {}

  /** Sets the timers of a key again, after a new version has changed when they are due. The key is selected. */
  void schedule(String key) {}

  /** Returns how far behind the watermark the event time of a later result may be. */
  long delay() {
    return plan.lateness;
  }

  /** Returns a time plus a length, without overflow. */
  static long plus(long time, long length) {
    return time > Long.MAX_VALUE - length ? Long.MAX_VALUE : time + length;
  }

  static String text(long micros) {
    return Instant.ofEpochSecond(Math.floorDiv(micros, 1_000_000L), Math.floorMod(micros, 1_000_000L) * 1_000).toString();
  }

  /** Returns a number as text of fixed length that sorts like the number. */
  static String digits(long number) {
    String text = Long.toUnsignedString(number ^ Long.MIN_VALUE);
    return "00000000000000000000".substring(text.length()) + text;
  }

  /** Parses a text of {@link #digits}. */
  static long number(String digits) {
    return Long.parseUnsignedLong(digits) ^ Long.MIN_VALUE;
  }
}
