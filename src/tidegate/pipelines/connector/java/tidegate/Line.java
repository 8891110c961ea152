package tidegate;

import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.Row;

/** Formats a row of a service as a record of the log: id and source, then the rest of its JSON object. */
final class Line {
  private Line() {}

  /** Returns the record, followed by {@code ending}. {@code sourced}: with the key {@code _src}. */
  static byte[] of(Row row, boolean sourced, String ending) {
    String body = row.getString(8);
    StringBuilder line = new StringBuilder(body.length() + 96).append("{\"_id\":");
    quote(row.getString(5), line);
    if (sourced && !row.isNullAt(6)) {
      line.append(",\"_src\":");
      quote(row.getString(6), line);
    }
    if (body.length() > 2) {
      line.append(',');
    }
    return line.append(body, 1, body.length()).append(ending).toString().getBytes(StandardCharsets.UTF_8);
  }

  private static void quote(String text, StringBuilder into) {
    into.append('"');
    for (int i = 0; i < text.length(); i++) {
      char letter = text.charAt(i);
      if (letter == '"' || letter == '\\') {
        into.append('\\').append(letter);
      } else if (letter < ' ') {
        into.append(String.format("\\u%04x", (int) letter));
      } else {
        into.append(letter);
      }
    }
    into.append('"');
  }
}
