package tidegate;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Recognises records that a service has written again after a failure: those that are not after the last one of their
 * source.
 *
 * <p>Only records of our own writers can be repeats. They begin with {@code _id} and {@code _src}.
 */
final class Repeats {
  private static final byte[] ID = "{\"_id\":\"".getBytes(StandardCharsets.UTF_8);
  private static final byte[] SOURCE = "\",\"_src\":\"".getBytes(StandardCharsets.UTF_8);

  private final Map<String, long[]> reached = new HashMap<>();

  /** Returns true if a record is a repeat. Otherwise it becomes the last one of its source. */
  boolean has(byte[] record) {
    String source = source(record);
    int at = source == null ? -1 : source.lastIndexOf(':');
    if (at < 0) {
      return false;
    }
    long[] place = place(source.substring(at + 1));
    if (place == null) {
      return false;
    }
    long[] last = reached.put(source.substring(0, at), place);
    if (last == null || isBehind(last, place)) {
      return false;
    }
    reached.put(source.substring(0, at), last);
    return true;
  }

  /** Returns true if a place is after the last one. */
  static boolean isBehind(long[] last, long[] place) {
    return last[0] < place[0] || last[0] == place[0] && last[1] < place[1];
  }

  /** Parses {@code position.child} or {@code position} into position and child; null if it is neither. */
  static long[] place(String text) {
    int dot = text.indexOf('.');
    try {
      long position = Long.parseLong(dot < 0 ? text : text.substring(0, dot));
      return new long[] {position, dot < 0 ? 0 : Long.parseLong(text.substring(dot + 1))};
    } catch (NumberFormatException another) {
      return null;
    }
  }

  /** The source of a record of our own writers, as {@code stream/partition:position}; null where it has none. */
  static String source(byte[] record) {
    if (!startsWith(record, ID, 0)) {
      return null;
    }
    int at = ID.length;
    while (at < record.length && record[at] != '"') {
      at += record[at] == '\\' ? 2 : 1;
    }
    if (!startsWith(record, SOURCE, at)) {
      return null;
    }
    int begin = at + SOURCE.length;
    int end = begin;
    while (end < record.length && record[end] != '"') {
      end++;
    }
    return new String(record, begin, end - begin, StandardCharsets.UTF_8);
  }

  private static boolean startsWith(byte[] record, byte[] word, int at) {
    if (record.length < at + word.length) {
      return false;
    }
    for (int n = 0; n < word.length; n++) {
      if (record[at + n] != word[n]) {
        return false;
      }
    }
    return true;
  }
}
