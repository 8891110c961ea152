package tidegate;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * Appends the rows of a service to the log, each just once, also when Spark hands it a row again after a failure.
 *
 * <p>The columns: {@code verdict} (pass, flag, quarantine, drop or fail), {@code partition} (of the output),
 * {@code key} (null where the position tells), {@code revision}, {@code child}, {@code id}, {@code source},
 * {@code arrived} (microseconds), {@code body} (the JSON object without id and source).
 *
 * <p>By position: the rows of an output partition come in the order of one source partition, so those up to
 * the last one written are skipped, by position ({@code revision}) and child. By key: a row is skipped when its
 * key was written with this revision or a later one since the last checkpoint; see {@link Written}.
 */
public final class ServiceWriter extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1L;

  private final String service;
  private final String output;
  private final String quarantine;
  private final long segmentBytes;
  private final String identity;
  private final long sinceMicros;
  private transient Metrics metrics;
  private transient Map<String, Target> targets;
  private transient String ownPartition;

  /**
   * @param output the folder of the output stream
   * @param quarantine the folder of the quarantine's stream
   * @param identity how rows are told apart: {@code position} (of their source), {@code key}, or {@code revision} (of
   *     their key)
   * @param sinceMicros with keys: when the last checkpoint was made; what was written later may come again
   */
  public ServiceWriter(
      String service, String output, String quarantine, long segmentBytes, String identity, long sinceMicros) {
    this.service = service;
    this.output = output;
    this.quarantine = quarantine;
    this.segmentBytes = segmentBytes;
    this.identity = identity;
    this.sinceMicros = sinceMicros;
  }

  /** Closes the files of streams that are not written to any longer. */
  public static void closeStream(String folder) throws IOException {
    Appender.closeAll(Path.of(folder));
    Written.forget(Path.of(folder));
  }

  @Override
  public boolean open(long partition, long epoch) {
    metrics = Metrics.of(service);
    targets = new HashMap<>();
    ownPartition = Long.toString(partition);
    return true;
  }

  @Override
  public void process(Row row) {
    String verdict = row.getString(0);
    if (verdict.equals("drop")) {
      metrics.dropped();
      return;
    }
    if (verdict.equals("fail")) {
      throw new ConstraintViolated(row.getString(8));
    }
    boolean refused = verdict.equals("quarantine");
    String partition = row.isNullAt(1) ? ownPartition : row.getString(1);
    try {
      Target target = target(refused ? quarantine : output, partition);
      if (target.has(row)) {
        metrics.skipped();
        return;
      }
      target.appender.append(line(row));
      target.note(row);
    } catch (IOException problem) {
      throw new UncheckedIOException("the output of " + service + " can't be written", problem);
    }
    if (refused) {
      metrics.quarantined();
    } else {
      if (verdict.equals("flag")) {
        metrics.flagged();
      }
      metrics.written(row.isNullAt(7) ? 0 : row.getLong(7));
    }
  }

  @Override
  public void close(Throwable problem) {}

  private Target target(String folder, String partition) throws IOException {
    String key = folder + "/" + partition;
    Target found = targets.get(key);
    if (found == null) {
      found = new Target(Path.of(folder, partition));
      targets.put(key, found);
    }
    return found;
  }

  private static byte[] line(Row row) {
    String body = row.getString(8);
    StringBuilder line = new StringBuilder(body.length() + 96).append("{\"_id\":");
    quote(row.getString(5), line);
    if (!row.isNullAt(6)) {
      line.append(",\"_src\":");
      quote(row.getString(6), line);
    }
    if (body.length() > 2) {
      line.append(',');
    }
    return line.append(body, 1, body.length()).append('\n').toString().getBytes(StandardCharsets.UTF_8);
  }

  static void quote(String text, StringBuilder into) {
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

  /** One partition that is written to. */
  private final class Target {
    final Appender appender;
    private final boolean keyed;
    private final Written written;
    private long position = -1;
    private long child;

    Target(Path folder) throws IOException {
      appender = Appender.of(folder, segmentBytes);
      keyed = !identity.equals("position");
      written = keyed ? Written.of(folder, identity.equals("revision"), sinceMicros) : null;
      if (!keyed) {
        long[] last = Marks.last(folder);
        position = last == null ? -1 : last[0];
        child = last == null ? 0 : last[1];
      }
    }

    boolean has(Row row) {
      long revision = row.getLong(3);
      if (keyed) {
        return written.has(row.getString(2), revision);
      }
      return revision < position || revision == position && row.getInt(4) <= child;
    }

    void note(Row row) {
      if (keyed) {
        written.note(row.getString(2), row.getLong(3));
      } else {
        position = row.getLong(3);
        child = row.getInt(4);
      }
    }
  }

  /** What `on_violation: fail` ends a service with. */
  public static final class ConstraintViolated extends RuntimeException {
    private static final long serialVersionUID = 1L;

    ConstraintViolated(String reason) {
      super("a constraint is violated, and the service is told to fail: " + reason);
    }
  }
}
