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

  private final long idle;
  private final Map<String, Long> marks = new HashMap<>();
  private long value = Long.MIN_VALUE;
  private boolean isChanged;

  Watermark(Collection<String> sources, long idle, byte[] saved) {
    this.idle = idle;
    sources.forEach(source -> marks.put(source, Long.MIN_VALUE));
    if (saved != null) {
      for (String line : new String(saved, StandardCharsets.UTF_8).split("\n")) {
        int at = line.indexOf(' ');
        String source = line.substring(at + 1);
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
    long delay = Long.parseLong(parts[1]);
    long last = Long.parseLong(parts[2]);
    long now = Long.parseLong(parts[3]);
    if (now >= 0) {
      if (delay >= 0 && delay <= LIVE_DELAY) {
        mark = Math.max(mark, now - delay);
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
    new TreeMap<>(marks).forEach((source, mark) -> lines.append('\n').append(mark).append(' ').append(source));
    return lines.toString().getBytes(StandardCharsets.UTF_8);
  }
}
