package tidegate;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.sql.streaming.MapState;
import scala.collection.Iterator;

/**
 * Timers of the keys of one state partition, in event time: an index in memory over a map in the state.
 *
 * <p>Spark's own timers follow the wall clock, and Spark searches expired ones after every row. These follow the
 * watermark and cost nothing until the first is due. The map is stored under the key of the partition's ticks.
 */
final class KeyTimers {
  private static final int DIGITS = 20;

  private final MapState<String, Boolean> stored;
  private final TreeMap<Long, Set<String>> byTime = new TreeMap<>();

  /** Loads the index. The caller has selected the tick key. */
  KeyTimers(MapState<String, Boolean> stored) {
    this.stored = stored;
    for (Iterator<String> each = stored.keys(); each.hasNext(); ) {
      String entry = each.next();
      byTime.computeIfAbsent(StateShape.number(entry.substring(0, DIGITS)), time -> new HashSet<>())
          .add(entry.substring(DIGITS));
    }
  }

  /** Adds a timer. The caller has selected the tick key. */
  void add(long time, String key) {
    if (byTime.computeIfAbsent(time, each -> new HashSet<>()).add(key)) {
      stored.updateValue(entry(time, key), true);
    }
  }

  /** Removes all timers and returns their keys. The caller has selected the tick key. */
  Set<String> clear() {
    Set<String> keys = new TreeSet<>();
    while (!byTime.isEmpty()) {
      keys.addAll(poll());
    }
    return keys;
  }

  boolean isDue(long watermark) {
    return !byTime.isEmpty() && byTime.firstKey() <= watermark;
  }

  /** Removes the earliest due timers and returns their keys. The caller has selected the tick key. */
  List<String> poll() {
    var first = byTime.pollFirstEntry();
    List<String> keys = new ArrayList<>(first.getValue());
    keys.sort(null);
    keys.forEach(key -> stored.removeKey(entry(first.getKey(), key)));
    return keys;
  }

  private static String entry(long time, String key) {
    return StateShape.digits(time) + key;
  }
}
