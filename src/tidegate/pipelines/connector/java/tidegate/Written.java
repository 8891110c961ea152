package tidegate;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The keys that a stateful service has written since its checkpoint, each with its last revision.
 *
 * <p>The id of an event with revisions is {@code key#revision}, otherwise it is the key. After a restart the keys are
 * read from the records of the output since the checkpoint. Above a limit that no replay reaches, the oldest keys are
 * dropped.
 */
final class Written {
  private static final int LIMIT = 2_000_000;
  private static final byte[] ID = "{\"_id\":\"".getBytes(StandardCharsets.UTF_8);
  private static final Map<String, Written> ALL = new ConcurrentHashMap<>();

  /** Receives a record that was written. */
  interface Taker {
    void line(byte[] line);
  }

  /** Passes the records that were written from an offset on to a receiver, and returns the offset after them. */
  interface Lines {
    /** {@code from}: {@link #CHECKPOINT} the first time, then what the last call returned. */
    long each(long from, Taker take) throws IOException;
  }

  /** Stands for the offset where the output ended at the last checkpoint. */
  static final long CHECKPOINT = -1;
  /** Returned where no other process writes: nothing is read again. */
  static final long NO_OTHERS = Long.MAX_VALUE;

  private final String run;
  private Map<String, Long> recent = new HashMap<>();
  private Map<String, Long> older = new HashMap<>();
  private long end = CHECKPOINT;

  private Written(String run) {
    this.run = run;
  }

  /**
   * Returns what a partition of the output has, what other processes have written since the last call included.
   *
   * @param run the run of the query; what was kept for another is dropped
   */
  static Written of(String stream, String partition, String run, boolean revised, Lines lines) throws IOException {
    String name = stream + "/" + partition;
    Written found =
        ALL.compute(name, (any, known) -> known != null && known.run.equals(run) ? known : new Written(run));
    found.refresh(revised, lines);
    return found;
  }

  private synchronized void refresh(boolean revised, Lines lines) throws IOException {
    if (end != NO_OTHERS) {
      end = lines.each(end, line -> load(line, revised));
    }
  }

  static void forget(String stream) {
    ALL.keySet().removeIf(name -> name.startsWith(stream + "/"));
  }

  synchronized boolean has(String key, long revision) {
    Long last = recent.get(key);
    if (last == null) {
      last = older.get(key);
    }
    return last != null && last >= revision;
  }

  synchronized void note(String key, long revision) {
    if (recent.size() >= LIMIT / 2) {
      older = recent;
      recent = new HashMap<>();
    }
    recent.put(key, revision);
  }

  private void load(byte[] line, boolean revised) {
    String id = id(line);
    int at = id != null && revised ? id.lastIndexOf('#') : -1;
    if (at >= 0) {
      note(id.substring(0, at), Long.parseLong(id.substring(at + 1)));
    } else if (id != null) {
      note(id, 0);
    }
  }

  private static String id(byte[] line) {
    if (Marks.find(line, ID, 0) != 0) {
      return null;
    }
    StringBuilder id = new StringBuilder();
    String text = new String(line, ID.length, line.length - ID.length, StandardCharsets.UTF_8);
    for (int i = 0; i < text.length(); i++) {
      char letter = text.charAt(i);
      if (letter == '"') {
        return id.toString();
      }
      if (letter == '\\') {
        letter = text.charAt(++i);
        if (letter == 'u') {
          letter = (char) Integer.parseInt(text.substring(i + 1, i + 5), 16);
          i += 4;
        }
      }
      id.append(letter);
    }
    return null;
  }
}
