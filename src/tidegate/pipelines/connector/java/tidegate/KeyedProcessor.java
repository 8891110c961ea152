package tidegate;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Runs one stage with state: passes records in order of arrival to a {@link StateShape}, and the keys whose timers the
 * watermark has passed.
 *
 * <p>Ticks reach every state partition every 100 ms, also without events. They carry the clocks of the sources.
 * Watermark and timers are stored under the key of the ticks, so that a restart finds them. Spark runs one instance for
 * each state partition and batch, on one thread.
 */
public final class KeyedProcessor extends StatefulProcessor<String, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final StatePlan plan;
  private transient StateShape shape;
  private transient ValueState<byte[]> marks;
  private transient KeyTimers timers;
  private transient Watermark watermark;
  private transient String partition;
  private transient String tickKey;
  private transient boolean loaded;
  private transient List<Row> output;
  private transient org.apache.spark.sql.streaming.MapState<String, Boolean> storedTimers;
  private transient ValueState<Long> storedHeld;
  private transient ValueState<String> timing;
  private transient long held;
  private transient Metrics metrics;

  KeyedProcessor(StatePlan plan) {
    this.plan = plan;
  }

  /** Adds the stage to a frame with the columns that {@link StateRecord} reads. Runs on the driver. */
  public static Dataset<Row> apply(Dataset<Row> input, String json) {
    StatePlan plan = new StatePlan(json);
    return input
        .groupBy(plan.batches ? partition(plan) : functions.col("k"))
        .as(Encoders.STRING(), Encoders.row(input.schema()))
        .transformWithState(
            (StatefulProcessor<String, Row, Row>) new KeyedProcessor(plan),
            TimeMode.None(), OutputMode.Update(), Encoders.row(StateRecord.OUTPUT));
  }

  /**
   * The tick key of a row's state partition. Spark sorts the rows of a micro-batch by key: with this one the rows of all
   * keys stay in their order, with the ticks at the end.
   */
  private static Column partition(StatePlan plan) {
    Column[] keys = plan.tickKeys.stream().map(functions::lit).toArray(Column[]::new);
    Column number = functions.pmod(functions.hash(functions.col("k")), functions.lit(keys.length));
    return functions.get(functions.array(keys), number).as("k");
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    marks = getHandle().getValueState("marks", Encoders.BINARY(), TTLConfig.NONE());
    storedTimers = getHandle().getMapState("timers", Encoders.STRING(), Encoders.BOOLEAN(), TTLConfig.NONE());
    storedHeld = getHandle().getValueState("held", Encoders.LONG(), TTLConfig.NONE());
    timing = getHandle().getValueState("timing", Encoders.STRING(), TTLConfig.NONE());
    shape = StateShape.of(plan, getHandle());
    metrics = Metrics.of(plan.service);
  }

  /** Reads watermark and timers; not in {@code init}, which also runs on the driver, where there is no state. */
  private void load() {
    int number = TaskContext.getPartitionId();
    partition = plan.stage + "/" + number;
    tickKey = plan.tickKeys.get(number);
    under(tickKey, () -> {
      byte[] saved = marks.get();
      Long known = storedHeld.exists() ? storedHeld.get() : saved == null ? Long.valueOf(0) : null;
      if (saved == null && !storedHeld.exists()) {
        storedHeld.update(0L); // So that the count is known after a restart, even if no event is stored until then.
      }
      metrics.restore(partition, known);
      held = known == null ? 0 : known;
      watermark = new Watermark(plan.sources, plan.idle, plan.batches, saved);
      timers = new KeyTimers(storedTimers);
      return null;
    });
    tellWatermark(); // After a restart in silence the marks do not change.
    shape.begin(this);
    adaptTimers();
    loaded = true;
  }

  /** Sets all timers again if a version of the service with another lateness or other durations has written them. */
  private void adaptTimers() {
    Set<String> keys = under(tickKey, () -> {
      boolean isSame = plan.timing().equals(timing.get());
      if (!isSame) {
        timing.update(plan.timing());
      }
      return isSame ? Set.<String>of() : timers.clear();
    });
    for (String key : keys) {
      under(key, () -> {
        shape.schedule(key);
        return null;
      });
    }
  }

  @Override
  public Iterator<Row> handleInputRows(String key, Iterator<Row> rows, TimerValues none) {
    if (!loaded) {
      load();
    }
    output = new ArrayList<>();
    long before = held;
    while (rows.hasNext()) {
      handle(new StateRecord(rows.next()));
    }
    if (held != before) {
      under(tickKey, () -> {
        storedHeld.update(held);
        return null;
      });
      metrics.held(partition, held);
    }
    return CollectionConverters.asScala(output.iterator());
  }

  private void handle(StateRecord record) {
    ReadTime.set(record.read);
    switch (record.kind) {
      case StateRecord.TICK:
        watermark.tick(record.source, record.clock);
        if (!fireTimers()) {
          saveWatermark();
          forwardTicks();
        }
        return;
      case StateRecord.PASSED:
        output.add(row(StateRecord.PASSED, record, record.clock));
        return;
      default:
        if (record.clock == null) {
          watermark.record(record.source, record.time);
        }
        take(record);
        if (timers.isDue(watermark.value())) {
          fireTimers();
        }
    }
  }

  /** In real-time mode Spark has selected the key of the record. */
  private void take(StateRecord record) {
    if (!plan.batches) {
      shape.take(record);
      return;
    }
    under(record.key, () -> {
      shape.take(record);
      return null;
    });
  }

  /** Passes the keys whose timers are due to the shape, earliest first. Returns true if there were any. */
  private boolean fireTimers() {
    boolean fired = false;
    while (timers.isDue(watermark.value())) {
      for (String key : under(tickKey, timers::poll)) {
        under(key, () -> {
          shape.due(key);
          return null;
        });
      }
      fired = true;
    }
    if (fired) {
      // Not with the next tick only: a window that is closed now must stay closed after a restart.
      saveWatermark();
      forwardTicks();
    }
    return fired;
  }

  /**
   * Stores the marks of all sources if one has changed, and updates the metrics. In a micro-batch the watermark
   * also remembers the clocks of the sources.
   */
  private void saveWatermark() {
    if (watermark.isChanged() || plan.batches) {
      byte[] saved = watermark.save();
      under(tickKey, () -> {
        marks.update(saved);
        return null;
      });
      tellWatermark();
    }
  }

  private void tellWatermark() {
    metrics.watermark(partition, watermark.value());
    watermark.marks().forEach((source, mark) -> metrics.watermark(partition + "." + source, mark));
  }

  /** Sends ticks with the watermark of this stage to the next one: all later results are after that time. */
  private void forwardTicks() {
    if (plan.nextPartitions == 0 || watermark.value() == Long.MIN_VALUE) {
      return;
    }
    String clock = "=" + (watermark.value() - shape.delay());
    for (int n = 0; n < plan.nextPartitions; n++) {
      output.add(RowFactory.create(
          StateRecord.TICK, n, partition, clock, null, null, null, null, null, null, null, null, null));
    }
  }

  /** Runs work on the state of another key of this partition. */
  private <T> T under(String key, Supplier<T> work) {
    var own = ImplicitGroupingKeyTracker.getImplicitKeyOption();
    ImplicitGroupingKeyTracker.setImplicitKey(key);
    try {
      return work.get();
    } finally {
      if (own.isDefined()) {
        ImplicitGroupingKeyTracker.setImplicitKey(own.get());
      } else {
        ImplicitGroupingKeyTracker.removeImplicitKey();
      }
    }
  }

  // Called by shapes ----------------------------------------------------------------

  long watermark() {
    return watermark.value();
  }

  Metrics metrics() {
    return metrics;
  }

  /** Sets a timer: {@link StateShape#due} is called for the key when the watermark has reached the time. */
  void addTimer(long time, String key) {
    under(tickKey, () -> {
      timers.add(time, key);
      return null;
    });
  }

  /** Counts an event that was stored in the state. */
  void hold() {
    held++;
  }

  /** Counts events that the state no longer needs. */
  void release(long count) {
    held -= count;
    metrics.used(count);
  }

  /** Emits the result of a window of {@code count} events. */
  void emit(
      String key, long start, long end, long revision, long arrived, String[] events, String[] values, long count) {
    metrics.results(plan.limit < 0 ? 1 : Math.min(plan.limit, count));
    emit(key, start, end, revision, arrived, events, values);
  }

  private void emit(String key, long start, long end, long revision, long arrived, String[] events, String[] values) {
    output.add(RowFactory.create(
        StateRecord.RESULT, null, null, null, key, start, end, revision, arrived, null, listed(events), listed(values),
        null));
  }

  /** Emits a record, with events that belong to it. */
  void emit(StateRecord record, String[] events) {
    output.add(RowFactory.create(
        StateRecord.RESULT, null, record.source, null, record.key, record.time, record.time, 0L, record.arrived,
        record.event, listed(events), null, null));
  }

  /** Emits a record that arrived after its window was closed as refused. */
  void refuseLate(StateRecord record, String reason) {
    metrics.late();
    if (plan.onLate.equals("drop")) {
      metrics.dropped();
    } else {
      output.add(row(StateRecord.LATE, record, reason));
    }
  }

  private static Object listed(String[] texts) {
    return texts == null ? null : CollectionConverters.asScala(Arrays.asList(texts)).toSeq();
  }

  private static Row row(int kind, StateRecord record, String reason) {
    return RowFactory.create(
        kind, null, record.source, record.tie, record.id, record.time, null, 0L, record.arrived, record.event, null, null,
        reason);
  }
}
