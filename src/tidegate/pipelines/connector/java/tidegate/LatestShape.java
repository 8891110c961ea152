package tidegate;

import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/**
 * The latest events of each key.
 *
 * <p>{@code latest}: side 1 is a table; emits each event of side 0 with the newest event of the table. {@code
 * previous}: emits each event with the one {@code back} events before it. {@code distinct}: emits an event unless one
 * of its key was emitted whose time is at most {@code within} earlier or later.
 */
final class LatestShape extends StateShape {
  private final EventList events;
  private final ValueState<Long> counts;

  LatestShape(StatePlan plan, StatefulProcessorHandle handle) {
    super(plan);
    events = new EventList(handle);
    counts = handle.getValueState("count", Encoders.LONG(), TTLConfig.NONE());
  }

  @Override
  void take(StateRecord record) {
    switch (plan.shape) {
      case "latest":
        lookUp(record);
        break;
      case "previous":
        recall(record);
        break;
      default:
        takeOnce(record);
    }
  }

  private void lookUp(StateRecord record) {
    List<EventList.Held> held = events.all();
    EventList.Held newest = held.isEmpty() ? null : held.get(held.size() - 1);
    if (record.side == 0) {
      if (newest == null && plan.required) {
        processor.metrics().filtered();
      } else {
        processor.emit(record, new String[] {newest == null ? null : newest.event});
      }
    } else if (newest == null || record.time >= newest.time) {
      held.forEach(events::remove);
      events.add(0, record.time, record.tie, "-", record.event);
      processor.metrics().used(1);
    } else {
      processor.metrics().used(1);
    }
  }

  private void recall(StateRecord record) {
    List<EventList.Held> held = events.all();
    boolean isFull = held.size() >= plan.back;
    processor.emit(record, new String[] {isFull ? held.get(held.size() - plan.back).event : null});
    long count = (counts.exists() ? counts.get() : 0) + 1;
    counts.update(count);
    events.add(0, count, "", "-", record.event);
    if (isFull) {
      events.remove(held.get(0));
    }
  }

  private void takeOnce(StateRecord record) {
    for (EventList.Held held : events.all()) {
      if (Math.abs(held.time - record.time) <= plan.within) {
        processor.metrics().filtered();
        return;
      }
    }
    events.add(0, record.time, "", "-", "");
    processor.addTimer(plus(forgotten(record.time), 1), record.key);
    processor.emit(record, null);
  }

  /** Returns when an event is deleted. An event that is late by up to {@code within} still finds it. */
  private long forgotten(long time) {
    return plus(time, 2 * plan.within);
  }

  @Override
  void schedule(String key) {
    events.all().forEach(held -> processor.addTimer(plus(forgotten(held.time), 1), key));
  }

  @Override
  void due(String key) {
    for (EventList.Held held : events.all()) {
      if (forgotten(held.time) < processor.watermark()) {
        events.remove(held);
      }
    }
  }

  @Override
  long delay() {
    return 0;
  }
}
