package tidegate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;

/**
 * Joins the events of several inputs whose times are at most {@code within} apart.
 *
 * <p>A combination is emitted when its last event arrives. An outer join emits an event without a partner when no
 * partner can arrive any more: when the watermark has passed its time plus {@code within} and the lateness.
 */
final class JoinShape extends StateShape {
  private static final String ALONE = "0";
  private static final String JOINED = "1";

  private final EventList events;

  JoinShape(StatePlan plan, StatefulProcessorHandle handle) {
    super(plan);
    events = new EventList(handle);
  }

  private long expiry(long time) {
    return plus(plus(time, plan.within), plan.lateness);
  }

  @Override
  void take(StateRecord record) {
    if (expiry(record.time) < processor.watermark()) {
      processor.refuseLate(
          record, "late: its time is " + text(record.time) + ", and the watermark is " + text(processor.watermark()));
      return;
    }
    List<List<EventList.Held>> sides = new ArrayList<>();
    for (int side = 0; side < plan.sides; side++) {
      sides.add(new ArrayList<>());
    }
    for (EventList.Held held : events.all()) {
      if (held.side != record.side && Math.abs(held.time - record.time) <= plan.within) {
        sides.get(held.side).add(held);
      }
    }
    List<EventList.Held> met = new ArrayList<>();
    combine(record, sides, 0, new EventList.Held[plan.sides], met);
    met.stream().filter(held -> held.mark.equals(ALONE)).distinct().forEach(held -> events.mark(held, JOINED));
    events.add(record.side, record.time, record.tie, met.isEmpty() ? ALONE : JOINED, record.event);
    processor.hold();
    processor.addTimer(plus(expiry(record.time), 1), record.key);
  }

  /** Emits every combination of the record with one event of each other side that are all {@code within} each other. */
  private void combine(
      StateRecord record, List<List<EventList.Held>> sides, int side, EventList.Held[] chosen, List<EventList.Held> met) {
    if (side == plan.sides) {
      String[] texts = new String[plan.sides];
      for (int n = 0; n < texts.length; n++) {
        texts[n] = n == record.side ? record.event : chosen[n].event;
        if (n != record.side) {
          met.add(chosen[n]);
        }
      }
      processor.emit(record.key, record.time, record.time, 0, record.arrived, texts, null, 1);
      return;
    }
    if (side == record.side) {
      combine(record, sides, side + 1, chosen, met);
      return;
    }
    for (EventList.Held held : sides.get(side)) {
      if (isNear(held, chosen, side)) {
        chosen[side] = held;
        combine(record, sides, side + 1, chosen, met);
      }
    }
    chosen[side] = null;
  }

  private boolean isNear(EventList.Held held, EventList.Held[] chosen, int count) {
    for (int n = 0; n < count; n++) {
      if (chosen[n] != null && Math.abs(chosen[n].time - held.time) > plan.within) {
        return false;
      }
    }
    return true;
  }

  @Override
  void schedule(String key) {
    events.all().forEach(held -> processor.addTimer(plus(expiry(held.time), 1), key));
  }

  @Override
  void due(String key) {
    for (EventList.Held held : events.all()) {
      if (expiry(held.time) < processor.watermark()) {
        boolean isOuter = plan.how.equals("full") || plan.how.equals("left") && held.side == 0;
        if (isOuter && held.mark.equals(ALONE)) {
          String[] texts = new String[plan.sides];
          texts[held.side] = held.event;
          processor.emit(key, held.time, held.time, 0, 0, texts, null, 1);
        }
        events.remove(held);
        processor.release(1);
      }
    }
  }

  @Override
  long delay() {
    return plan.how.equals("inner") ? plan.lateness + plan.within : plan.within + plan.lateness + 1;
  }
}
