package tidegate;

import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.Iterator;

/**
 * Open windows of each key, with their aggregates: windows by time, sessions, and all events so far.
 *
 * <p>A window closes when the watermark reaches its end plus the lateness. With {@code on_late: update} it stays for
 * {@link #UPDATABLE_FOR} more, and after a late record its result is emitted again with a higher revision.
 */
final class WindowShape extends StateShape {
  /** How long a closed window can still be updated by late records. */
  private static final long UPDATABLE_FOR = 3_600_000_000L;
  /** The start of the one window of all events so far. */
  private static final long ALL = Long.MIN_VALUE;

  private final MapState<Long, byte[]> open;
  private final ValueState<byte[]> total;
  private final WindowItems items;
  private final ZoneId zone;
  private final boolean isKept;

  WindowShape(StatePlan plan, StatefulProcessorHandle handle) {
    super(plan);
    open = handle.getMapState("open", Encoders.LONG(), Encoders.BINARY(), TTLConfig.NONE());
    total = handle.getValueState("total", Encoders.BINARY(), TTLConfig.NONE());
    items = new WindowItems(handle);
    zone = plan.zone.isEmpty() ? null : ZoneId.of(plan.zone);
    isKept = plan.onLate.equals("update") && plan.windows.equals("time");
  }

  @Override
  void take(StateRecord record) {
    switch (plan.windows) {
      case "all":
        add(record, ALL, Long.MAX_VALUE, true);
        break;
      case "session":
        takeSession(record);
        break;
      default:
        takeTimed(record);
    }
  }

  // Windows by time -------------------------------------------------------------------

  private void takeTimed(StateRecord record) {
    long local = record.time + shift(record.time);
    boolean taken = false;
    long end = 0;
    for (long begin = Math.floorDiv(local - plan.offset, plan.slide) * plan.slide + plan.offset;
        begin > local - plan.length; begin -= plan.slide) {
      end = utc(begin + plan.length);
      boolean isLast = !taken;
      if (plus(end, plan.lateness) > processor.watermark() || isKept && end + plan.lateness + UPDATABLE_FOR > processor.watermark()) {
        add(record, utc(begin), end, isLast);
        taken = true;
      }
    }
    if (!taken) {
      processor.refuseLate(record, lateReason(end == 0 ? record.time : end));
    }
  }

  private String lateReason(long end) {
    return "late: its window ended at " + text(end) + ", and the watermark is " + text(processor.watermark());
  }

  /** Returns the offset of local time from UTC at a time. */
  private long shift(long time) {
    return zone == null
        ? 0
        : zone.getRules().getOffset(Instant.ofEpochSecond(Math.floorDiv(time, 1_000_000L))).getTotalSeconds() * 1_000_000L;
  }

  /** Returns the UTC time of a local time. */
  private long utc(long local) {
    if (zone == null) {
      return local;
    }
    LocalDateTime time = LocalDateTime.ofEpochSecond(Math.floorDiv(local, 1_000_000L), 0, ZoneOffset.UTC);
    return time.atZone(zone).toEpochSecond() * 1_000_000L + Math.floorMod(local, 1_000_000L);
  }

  private void add(StateRecord record, long start, long end, boolean isLast) {
    byte[] saved = open.getValue(start);
    OpenWindow window = saved == null ? new OpenWindow(plan, end) : OpenWindow.read(plan, saved);
    window.add(record, items, start);
    if (isLast) {
      window.held++;
      processor.hold();
    }
    if (saved == null && end != Long.MAX_VALUE) {
      processor.addTimer(plus(end, plan.lateness), record.key);
    }
    boolean isLateUpdate = isKept && plus(end, plan.lateness) <= processor.watermark();
    if (isLateUpdate && !window.closed) {
      close(record.key, start, window);
    } else if (plan.updates || isLateUpdate) {
      emit(record.key, start, window, record.arrived);
      release(window);
    }
    open.updateValue(start, window.save());
  }

  // Sessions --------------------------------------------------------------------------

  private void takeSession(StateRecord record) {
    long start = record.time;
    long end = plus(record.time, plan.length);
    List<Long> met = new ArrayList<>();
    OpenWindow merged = new OpenWindow(plan, end);
    for (Tuple2<Long, byte[]> entry : entries()) {
      OpenWindow other = OpenWindow.read(plan, entry._2());
      if (!other.closed && entry._1() <= end && other.end >= record.time) {
        met.add(entry._1());
        merged.merge(other);
        start = Math.min(start, entry._1());
      }
    }
    if (met.isEmpty() && plus(end, plan.lateness) <= processor.watermark()) {
      processor.refuseLate(record, lateReason(end));
      return;
    }
    for (long other : met) {
      if (other != start || met.size() > 1) {
        open.removeKey(other);
      }
      items.move(other, start);
    }
    merged.add(record, items, start);
    merged.held++;
    processor.hold();
    processor.addTimer(plus(merged.end, plan.lateness), record.key);
    if (plan.updates) {
      emit(record.key, start, merged, record.arrived);
      release(merged);
    }
    open.updateValue(start, merged.save());
  }

  // Closing ---------------------------------------------------------------------------

  @Override
  void due(String key) {
    List<Tuple2<Long, byte[]>> entries = entries();
    List<Object[]> closing = new ArrayList<>();
    for (Tuple2<Long, byte[]> entry : entries) {
      OpenWindow window = OpenWindow.read(plan, entry._2());
      if (window.end != Long.MAX_VALUE && plus(window.end, plan.lateness) <= processor.watermark()) {
        closing.add(new Object[] {entry._1(), window});
      }
    }
    closing.sort(Comparator.comparingLong(each -> ((OpenWindow) each[1]).end));
    for (Object[] each : closing) {
      long start = (Long) each[0];
      OpenWindow window = (OpenWindow) each[1];
      if (!window.closed) {
        close(key, start, window);
      }
      if (!isKept) {
        remove(start);
      } else if (window.end + plan.lateness + UPDATABLE_FOR <= processor.watermark()) {
        remove(start);
      } else {
        open.updateValue(start, window.save());
        processor.addTimer(window.end + plan.lateness + UPDATABLE_FOR, key);
      }
    }
  }

  @Override
  void schedule(String key) {
    for (Tuple2<Long, byte[]> entry : entries()) {
      OpenWindow window = OpenWindow.read(plan, entry._2());
      if (window.end != Long.MAX_VALUE) {
        processor.addTimer(plus(window.end, plan.lateness) + (window.closed ? UPDATABLE_FOR : 0), key);
      }
    }
  }

  private void remove(long start) {
    open.removeKey(start);
    items.remove(start);
  }

  private void close(String key, long start, OpenWindow window) {
    window.closed = true;
    if (plan.windows.equals("running")) {
      byte[] saved = total.get();
      OpenWindow sum = saved == null ? new OpenWindow(plan, window.end) : OpenWindow.read(plan, saved);
      sum.merge(window);
      sum.end = window.end;
      total.update(sum.save());
      items.move(start, ALL);
      String[][] lists = items.lists(ALL, plan);
      processor.emit(key, start, window.end, 0, sum.arrived, null, sum.values(lists), sum.count);
    } else if (!plan.updates) {
      emit(key, start, window, window.arrived);
    }
    release(window);
  }

  private void emit(String key, long start, OpenWindow window, long arrived) {
    boolean isRevised = plan.updates || isKept;
    long from = start == ALL || plan.windows.equals("session") ? window.first : start;
    long to = start == ALL ? window.last : window.end;
    String[] values = window.values(items.lists(start, plan));
    processor.emit(key, from, to, isRevised ? window.count : 0, arrived, null, values, window.count);
  }

  private void release(OpenWindow window) {
    processor.release(window.held);
    window.held = 0;
  }

  private List<Tuple2<Long, byte[]>> entries() {
    List<Tuple2<Long, byte[]>> entries = new ArrayList<>();
    for (Iterator<Tuple2<Long, byte[]>> each = open.iterator(); each.hasNext(); ) {
      entries.add(each.next());
    }
    return entries;
  }
}
