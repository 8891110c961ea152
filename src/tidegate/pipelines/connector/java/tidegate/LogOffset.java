package tidegate;

import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** One byte position for each partition, and when that was the end, as JSON: {"0": 4096, "seen": "1767225600000000"}. */
final class LogOffset extends Offset {
  private static final Pattern ENTRY = Pattern.compile("\"([A-Za-z0-9_.-]+)\"\\s*:\\s*(\\d+)");

  private static final Pattern SEEN = Pattern.compile("\"seen\"\\s*:\\s*\"(\\d+)\"");

  final Map<String, Long> positions;
  /** In microseconds; 0 if a silent stream makes no batch. */
  final long seen;

  LogOffset(Map<String, Long> positions) {
    this(positions, 0);
  }

  LogOffset(Map<String, Long> positions, long seen) {
    this.positions = new TreeMap<>(positions);
    this.seen = seen;
  }

  static LogOffset fromJson(String json) {
    Map<String, Long> positions = new TreeMap<>();
    Matcher entries = ENTRY.matcher(json);
    while (entries.find()) {
      positions.put(entries.group(1), Long.parseLong(entries.group(2)));
    }
    Matcher seen = SEEN.matcher(json);
    return new LogOffset(positions, seen.find() ? Long.parseLong(seen.group(1)) : 0);
  }

  @Override
  public String json() {
    StringBuilder text = new StringBuilder("{");
    positions.forEach(
        (name, position) ->
            text.append(text.length() > 1 ? "," : "").append('"').append(name).append("\":").append(position));
    if (seen > 0) {
      text.append(text.length() > 1 ? "," : "").append("\"seen\":\"").append(seen).append('"');
    }
    return text.append('}').toString();
  }
}
