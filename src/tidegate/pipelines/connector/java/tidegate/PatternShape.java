package tidegate;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/**
 * Finds a pattern in the events of each key, in order of time.
 *
 * <p>Every event that satisfies the first step begins a run. The first run that completes emits a match and ends all
 * runs of its key, so matches do not overlap. Events that a run does not need are skipped. A step with {@code for} ends
 * its run at the first event that does not satisfy it once it has begun, and lasts until the watermark has passed; such
 * a first step begins only after an event that does not satisfy it. An absent step ends its run at an event that
 * satisfies it.
 */
final class PatternShape extends StateShape {
  /** The largest number of runs of a key at a time; the oldest one is dropped. */
  private static final int MAX_RUNS = 1_000;

  private static final ObjectMapper JSON = new ObjectMapper();

  /** A partial match, in its stored form. */
  static final class Run {
    public int step;
    public int taken;
    public long start;
    public double spanStart;
    /** Start of the current step, if it has a duration. */
    public long since;
    public long end;
    /** The JSON of the matched events of each step. */
    public List<List<String>> events = new ArrayList<>();
  }

  /** The state of a key. */
  static final class Runs {
    public List<Run> runs = new ArrayList<>();
    /** True if the last event satisfied the first step. */
    public boolean isInside;
    public long last = Long.MIN_VALUE;
  }

  private final ValueState<String> stored;
  private final EventList waiting;
  private final StatePlan.Step[] steps;

  PatternShape(StatePlan plan, StatefulProcessorHandle handle) {
    super(plan);
    stored = handle.getValueState("runs", Encoders.STRING(), TTLConfig.NONE());
    waiting = new EventList(handle);
    steps = plan.steps.toArray(new StatePlan.Step[0]);
  }

  @Override
  void take(StateRecord record) {
    if (plus(record.time, plan.lateness) < processor.watermark() && record.time < read().last) {
      processor.refuseLate(
          record, "late: its time is " + text(record.time) + ", and the watermark is " + text(processor.watermark()));
      return;
    }
    StringBuilder mark = new StringBuilder();
    for (int n = 0; n < steps.length; n++) {
      mark.append(Boolean.TRUE.equals(record.argument(n)) ? '1' : '0');
    }
    if (plan.span >= 0) {
      Object value = record.argument(plan.span);
      mark.append(':').append(value == null ? "" : value.toString());
    }
    waiting.add(0, record.time, record.tie, mark.toString(), record.event);
    processor.hold();
    processor.addTimer(plus(record.time, plan.lateness), record.key);
  }

  @Override
  void schedule(String key) {
    waiting.all().forEach(held -> processor.addTimer(plus(held.time, plan.lateness), key));
    write(key, read());
  }

  @Override
  void due(String key) {
    Runs runs = read();
    for (EventList.Held held : waiting.all()) {
      if (plus(held.time, plan.lateness) > processor.watermark()) {
        break;
      }
      expire(key, runs, held.time);
      advance(key, runs, held);
      runs.last = Math.max(runs.last, held.time);
      waiting.remove(held);
      processor.release(1);
    }
    expire(key, runs, processor.watermark() - plan.lateness);
    write(key, runs);
  }

  /** Completes steps whose duration has passed at a time, and drops runs that took too long. */
  private void expire(String key, Runs runs, long time) {
    for (Iterator<Run> each = runs.runs.iterator(); each.hasNext(); ) {
      Run run = each.next();
      boolean isOver = false;
      while (!isOver && hasLasted(run, time)) {
        run.end = run.since + steps[run.step].lasting;
        isOver = plan.within >= 0 && run.end - run.start > plan.within;
        if (!isOver && finishStep(key, runs, run)) {
          return;
        }
      }
      if (isOver || plan.within >= 0 && time - run.start > plan.within) {
        each.remove();
      }
    }
  }

  /** True if the duration of a run's step has passed at a time. A step with events starts at its first event. */
  private boolean hasLasted(Run run, long time) {
    StatePlan.Step step = steps[run.step];
    return step.lasting >= 0 && (step.absent || run.taken > 0) && plus(run.since, step.lasting) <= time;
  }

  private void advance(String key, Runs runs, EventList.Held event) {
    for (Iterator<Run> each = runs.runs.iterator(); each.hasNext(); ) {
      Run run = each.next();
      Outcome outcome = feed(run, event);
      if (outcome == Outcome.DEAD) {
        each.remove();
      } else if (outcome == Outcome.COMPLETE && finishStep(key, runs, run)) {
        runs.isInside = satisfies(event, 0);
        return;
      }
    }
    boolean begins = satisfies(event, 0) && !(steps[0].lasting >= 0 && runs.isInside);
    runs.isInside = satisfies(event, 0);
    if (begins) {
      Run run = new Run();
      run.start = event.time;
      run.since = event.time;
      run.spanStart = span(event);
      for (int n = 0; n < steps.length; n++) {
        run.events.add(new ArrayList<>());
      }
      takeInto(run, event);
      runs.runs.add(run);
      if (runs.runs.size() > MAX_RUNS) {
        runs.runs.remove(0);
      }
      if (isFull(run) || isComplete(run)) {
        finishStep(key, runs, run);
      }
    }
  }

  private enum Outcome {
    ALIVE,
    DEAD,
    COMPLETE
  }

  /** Applies an event to a run. */
  private Outcome feed(Run run, EventList.Held event) {
    StatePlan.Step step = steps[run.step];
    if (step.absent) {
      if (isLonger(run, event)) {
        run.events.get(run.step - 1).add(event.event);
        run.since = event.time;
        run.end = event.time;
        return Outcome.ALIVE;
      }
      if (satisfies(event, run.step)) {
        return Outcome.DEAD;
      }
      if (step.lasting >= 0) {
        return Outcome.ALIVE;
      }
      run.step++;
      Outcome next = feed(run, event);
      if (run.taken == 0 && next == Outcome.ALIVE) {
        run.step--;
      }
      return next;
    }
    if (step.lasting >= 0) {
      if (!satisfies(event, run.step)) {
        return run.taken == 0 ? Outcome.ALIVE : Outcome.DEAD;
      }
      if (run.taken == 0) {
        run.since = event.time;
      }
      takeInto(run, event);
      return Outcome.ALIVE;
    }
    if (run.taken >= step.least && run.step + 1 < steps.length && !steps[run.step + 1].absent
        && satisfies(event, run.step + 1) && isWithin(run, event)) {
      run.step++;
      run.taken = 0;
      run.since = event.time;
      step = steps[run.step];
      takeInto(run, event);
    } else if (satisfies(event, run.step) && run.taken < step.most && isWithin(run, event)) {
      takeInto(run, event);
    } else {
      return Outcome.ALIVE;
    }
    if (step.lasting >= 0) {
      return Outcome.ALIVE;
    }
    return isFull(run) || isComplete(run) ? Outcome.COMPLETE : Outcome.ALIVE;
  }

  /** True if a step takes no more events. Before an absent step the minimum is enough; see {@link #isLonger}. */
  private boolean isFull(Run run) {
    StatePlan.Step step = steps[run.step];
    boolean isBeforeAbsent = run.step + 1 < steps.length && steps[run.step + 1].absent;
    return step.lasting < 0 && run.taken >= (isBeforeAbsent ? step.least : step.most);
  }

  /** True if the step before an absent one takes one more event: not if the step after the absent one can begin. */
  private boolean isLonger(Run run, EventList.Held event) {
    int before = run.step - 1;
    boolean isCounted = !steps[before].absent && steps[before].lasting < 0;
    boolean hasRoom = isCounted && run.events.get(before).size() < steps[before].most;
    boolean isNext = steps[run.step].lasting < 0 && satisfies(event, run.step + 1) && isWithin(run, event);
    return hasRoom && !isNext && satisfies(event, before) && isWithin(run, event);
  }

  /** True if the last step has its minimum of events: a match does not wait for more. */
  private boolean isComplete(Run run) {
    return run.step == steps.length - 1 && steps[run.step].lasting < 0 && run.taken >= steps[run.step].least;
  }

  private void takeInto(Run run, EventList.Held event) {
    run.events.get(run.step).add(event.event);
    run.taken++;
    run.end = event.time;
  }

  private boolean isWithin(Run run, EventList.Held event) {
    boolean inTime = plan.within < 0 || event.time - run.start <= plan.within;
    return inTime && (plan.span < 0 || Math.abs(span(event) - run.spanStart) <= plan.spanLimit);
  }

  /** Moves a run to its next step. Without one, emits the match, ends all runs, and returns true. */
  private boolean finishStep(String key, Runs runs, Run run) {
    if (run.step + 1 < steps.length) {
      run.step++;
      run.taken = 0;
      run.since = run.end;
      return false;
    }
    try {
      String[] lists = new String[steps.length];
      for (int n = 0; n < lists.length; n++) {
        lists[n] = WindowItems.array(run.events.get(n).toArray(new String[0]));
      }
      processor.emit(key, run.start, run.end, 0, 0, lists, null, 1);
    } finally {
      runs.runs.clear();
    }
    return true;
  }

  private static boolean satisfies(EventList.Held event, int step) {
    return event.mark.charAt(step) == '1';
  }

  private static double span(EventList.Held event) {
    String text = event.mark.substring(event.mark.indexOf(':') + 1);
    return event.mark.indexOf(':') < 0 || text.isEmpty() ? Double.NaN : Double.parseDouble(text);
  }

  private Runs read() {
    try {
      String saved = stored.get();
      return saved == null ? new Runs() : JSON.readValue(saved, Runs.class);
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }

  private void write(String key, Runs runs) {
    try {
      stored.update(JSON.writeValueAsString(runs));
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
    for (Run run : runs.runs) {
      StatePlan.Step step = steps[run.step];
      if (step.lasting >= 0 && (step.absent || run.taken > 0)) {
        processor.addTimer(plus(plus(run.since, step.lasting), plan.lateness), key);
      }
    }
  }
}
