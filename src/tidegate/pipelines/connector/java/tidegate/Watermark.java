package tidegate;

import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * The watermark of one state partition: the smallest mark of all its sources. It never decreases.
 *
 * <p>The mark of a source is the largest event time of its records. If everything of the source was read, the wall
 * clock moves the mark too. If the events are live, that is at most a minute late, the mark follows the clock behind by
 * their largest recent delay. If the source was silent for {@code idle}, the mark is the clock. The mark of an earlier
 * stage is that stage's own watermark.
 */
final class Watermark {
  private static final long LIVE_DELAY = 60_000_000L;
  /** How much of the largest delay each later record takes away. */
  private static final double DECAY = 0.01;

  /** What the ticks of a source told in earlier micro-batches. */
  private static final class Known {
    double delay = -1;
    long last = -1;

    void add(double batchDelay, long batchLast, long records) {
      if (records > 0) {
        delay = Math.max(batchDelay, batchDelay + (delay - batchDelay) * Math.pow(1 - DECAY, records));
      }
      if (records > 0 || last < 0) {
        last = batchLast;
      }
    }
  }

  private final long idle;
  private final boolean batches;
  private final Map<String, Long> marks = new HashMap<>();
  private final Map<String, Known> known = new HashMap<>();
  private long value = Long.MIN_VALUE;
  private boolean isChanged;

  /** {@code batches}: clocks tell of one micro-batch only. */
  Watermark(Collection<String> sources, long idle, boolean batches, byte[] saved) {
    this.idle = idle;
    this.batches = batches;
    sources.forEach(source -> marks.put(source, Long.MIN_VALUE));
    if (saved != null) {
      for (String line : new String(saved, StandardCharsets.UTF_8).split("\n")) {
        int at = line.indexOf(' ');
        String[] parts = line.substring(at + 1).split("\t");
        String source = parts[0];
        if (parts.length == 3) {
          Known one = known.computeIfAbsent(source, name -> new Known());
          one.delay = Double.parseDouble(parts[1]);
          one.last = Long.parseLong(parts[2]);
        }
        if (source.isEmpty()) {
          value = Long.parseLong(line.substring(0, at));
        } else if (marks.containsKey(source)) {
          marks.put(source, Long.parseLong(line.substring(0, at)));
        }
      }
    }
  }

  long value() {
    return value;
  }

  /** Adds the time of a record. Only for records of a source, not of an earlier stage. */
  void record(String source, long time) {
    advance(source, time);
  }

  /** Adds the clock of a tick, in the form of {@link SourceClock} or {@link KeyedProcessor}. */
  void tick(String source, String clock) {
    if (clock.startsWith("=")) {
      advance(source, Long.parseLong(clock.substring(1)));
      return;
    }
    String[] parts = clock.split(",");
    long mark = Long.parseLong(parts[0]);
    double delay = Long.parseLong(parts[1]);
    long last = Long.parseLong(parts[2]);
    long now = Long.parseLong(parts[3]);
    if (batches) {
      Known one = known.computeIfAbsent(source, name -> new Known());
      one.add(delay, last, Long.parseLong(parts[4]));
      delay = one.delay;
      last = one.last;
    }
    if (now >= 0) {
      if (delay >= 0 && delay <= LIVE_DELAY) {
        mark = Math.max(mark, now - (long) delay);
      }
      if (idle >= 0 && now - last >= idle) {
        mark = Math.max(mark, now);
      }
    }
    advance(source, mark);
  }

  private void advance(String source, long mark) {
    Long known = marks.get(source);
    if (known == null || mark > known) {
      marks.put(source, mark);
      isChanged = true;
      long least = Long.MAX_VALUE;
      for (long each : marks.values()) {
        least = Math.min(least, each);
      }
      value = Math.max(value, least);
    }
  }

  /** True if a mark has changed since {@link #save} was called. */
  boolean isChanged() {
    return isChanged;
  }

  /** Returns the mark of each source. */
  Map<String, Long> marks() {
    return marks;
  }

  byte[] save() {
    isChanged = false;
    StringBuilder lines = new StringBuilder(value + " ");
    new TreeMap<>(marks).forEach((source, mark) -> {
      lines.append('\n').append(mark).append(' ').append(source);
      Known one = known.get(source);
      if (one != null) {
        lines.append('\t').append(one.delay).append('\t').append(one.last);
      }
    });
    return lines.toString().getBytes(StandardCharsets.UTF_8);
  }
}
