package tidegate;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The keys that a stateful service has written since its checkpoint, each with its last revision.
 *
 * <p>The id of an event that has revisions is {@code key#revision}, else it is the key. After a restart the output itself tells: its records since the checkpoint are read
 * once. Keys of old windows are let go of, oldest first, beyond a limit that no replay reaches.
 */
final class Written {
  private static final int LIMIT = 2_000_000;
  private static final byte[] ID = "{\"_id\":\"".getBytes(StandardCharsets.UTF_8);
  private static final Map<Path, Written> ALL = new ConcurrentHashMap<>();

  private Map<String, Long> recent = new HashMap<>();
  private Map<String, Long> older = new HashMap<>();

  static Written of(Path partition, boolean revised, long sinceMicros) throws IOException {
    Written found = ALL.get(partition);
    if (found == null) {
      found = new Written();
      found.load(partition, revised, sinceMicros);
      ALL.put(partition, found);
    }
    return found;
  }

  static void forget(Path stream) {
    ALL.keySet().removeIf(partition -> partition.startsWith(stream));
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

  private void load(Path partition, boolean revised, long sinceMicros) throws IOException {
    try (LineReader lines = new LineReader(partition, offsetAt(partition, sinceMicros))) {
      for (byte[] line = lines.next(); line != null; line = lines.next()) {
        String id = id(line);
        if (id != null && revised) {
          int at = id.lastIndexOf('#');
          note(id.substring(0, at), Long.parseLong(id.substring(at + 1)));
        } else if (id != null) {
          note(id, 0);
        }
      }
    }
  }

  /** The offset of the last entry of the time index before a moment. */
  private static long offsetAt(Path partition, long micros) throws IOException {
    List<Long> bases = Partition.segments(partition);
    long at = bases.isEmpty() ? 0 : bases.get(0);
    for (long base : bases) {
      Path times = Partition.times(partition, base);
      if (!Files.exists(times)) {
        continue;
      }
      ByteBuffer entries = ByteBuffer.wrap(Files.readAllBytes(times)).order(ByteOrder.LITTLE_ENDIAN);
      while (entries.remaining() >= 16) {
        if (entries.getLong() >= micros) {
          return at;
        }
        at = entries.getLong();
      }
    }
    return at;
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
