package tidegate;

import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/**
 * Windows by count: the last {@code length} events of a key, at every {@code slide}.
 *
 * <p>With {@code windows: running} the result is the aggregates over all events so far, else the events themselves.
 */
final class CountShape extends StateShape {
  private final ValueState<Long> counts;
  private final ValueState<byte[]> total;
  private final EventList events;
  private final WindowItems items;

  CountShape(StatePlan plan, StatefulProcessorHandle handle) {
    super(plan);
    counts = handle.getValueState("count", Encoders.LONG(), TTLConfig.NONE());
    total = handle.getValueState("total", Encoders.BINARY(), TTLConfig.NONE());
    events = new EventList(handle);
    items = new WindowItems(handle);
  }

  @Override
  void take(StateRecord record) {
    long count = (counts.exists() ? counts.get() : 0) + 1;
    counts.update(count);
    boolean isEnd = count >= plan.length && (count - plan.length) % plan.slide == 0;
    if (plan.windows.equals("running")) {
      byte[] saved = total.get();
      OpenWindow all = saved == null ? new OpenWindow(plan, 0) : OpenWindow.read(plan, saved);
      all.add(record, items, 0);
      total.update(all.save());
      if (isEnd) {
        String[] values = all.values(items.lists(0, plan));
        processor.emit(record.key, all.first, all.last, count, all.arrived, null, values, count);
      }
      processor.metrics().used(1);
      return;
    }
    events.add(0, count, "", "-", record.event);
    processor.hold();
    if (isEnd) {
      List<EventList.Held> held = events.all();
      String[] texts = held.stream().map(each -> each.event).toArray(String[]::new);
      processor.emit(record.key, 0, 0, count, record.arrived, texts, null, texts.length);
      for (int n = 0; n < held.size() - (plan.length - plan.slide); n++) {
        events.remove(held.get(n));
        processor.release(1);
      }
    }
  }

  @Override
  long delay() {
    return 0;
  }
}
