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

  /** Passes the records that were written since the checkpoint to a receiver. */
  interface Lines {
    void each(Taker take) throws IOException;
  }

  private Map<String, Long> recent = new HashMap<>();
  private Map<String, Long> older = new HashMap<>();

  static Written of(String stream, String partition, boolean revised, Lines lines) throws IOException {
    String name = stream + "/" + partition;
    Written found = ALL.get(name);
    if (found == null) {
      Written made = new Written();
      lines.each(line -> made.load(line, revised));
      ALL.put(name, made);
      found = made;
    }
    return found;
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
