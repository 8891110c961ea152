package tidegate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/**
 * Joins the tuple windows of several inputs: the last {@code length} events of each, which move by {@code slide}.
 *
 * <p>An event waits until {@code slide} events of its input have arrived; then its window moves, and the new events are
 * combined with the windows of the other inputs. So each combination is emitted once.
 */
final class TupleJoinShape extends StateShape {
  private static final String WAITING = "0";
  private static final String INSIDE = "1";

  private final EventList events;
  private final ValueState<Long> counts;

  TupleJoinShape(StatePlan plan, StatefulProcessorHandle handle) {
    super(plan);
    events = new EventList(handle);
    counts = handle.getValueState("count", Encoders.LONG(), TTLConfig.NONE());
  }

  @Override
  void take(StateRecord record) {
    long count = (counts.exists() ? counts.get() : 0) + 1;
    counts.update(count);
    events.add(record.side, count, "", WAITING, record.event);
    processor.hold();
    List<List<EventList.Held>> windows = new ArrayList<>();
    for (int side = 0; side < plan.sides; side++) {
      windows.add(new ArrayList<>());
    }
    List<EventList.Held> added = new ArrayList<>();
    for (EventList.Held held : events.all()) {
      if (held.side == record.side) {
        (held.mark.equals(WAITING) ? added : windows.get(held.side)).add(held);
      } else if (held.mark.equals(INSIDE)) {
        windows.get(held.side).add(held);
      }
    }
    if (added.size() < plan.slide) {
      return;
    }
    for (EventList.Held held : added) {
      String[] chosen = new String[plan.sides];
      chosen[record.side] = held.event;
      combine(record, windows, 0, chosen);
      events.mark(held, INSIDE);
      windows.get(record.side).add(held);
    }
    List<EventList.Held> own = windows.get(record.side);
    for (int n = 0; n < own.size() - plan.length; n++) {
      events.remove(own.get(n));
      processor.release(1);
    }
  }

  private void combine(StateRecord record, List<List<EventList.Held>> windows, int side, String[] chosen) {
    if (side == plan.sides) {
      processor.emit(record.key, record.time, record.time, 0, record.arrived, chosen.clone(), null, 1);
    } else if (side == record.side) {
      combine(record, windows, side + 1, chosen);
    } else {
      for (EventList.Held held : windows.get(side)) {
        chosen[side] = held.event;
        combine(record, windows, side + 1, chosen);
      }
    }
  }

  @Override
  long delay() {
    return 0;
  }
}
