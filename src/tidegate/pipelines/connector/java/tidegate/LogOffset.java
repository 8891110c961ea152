package tidegate;

import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** One byte position for each partition, as JSON: {"0": 4096}. */
final class LogOffset extends Offset {
  private static final Pattern ENTRY = Pattern.compile("\"([A-Za-z0-9_.-]+)\"\\s*:\\s*(\\d+)");

  final Map<String, Long> positions;

  LogOffset(Map<String, Long> positions) {
    this.positions = new TreeMap<>(positions);
  }

  static LogOffset fromJson(String json) {
    Map<String, Long> positions = new TreeMap<>();
    Matcher entries = ENTRY.matcher(json);
    while (entries.find()) {
      positions.put(entries.group(1), Long.parseLong(entries.group(2)));
    }
    return new LogOffset(positions);
  }

  @Override
  public String json() {
    StringBuilder text = new StringBuilder("{");
    positions.forEach(
        (name, position) ->
            text.append(text.length() > 1 ? "," : "").append('"').append(name).append("\":").append(position));
    return text.append('}').toString();
  }
}
