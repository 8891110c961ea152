package tidegate;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * Appends the rows of a service to a log. A row that Spark passes again after a failure is skipped.
 *
 * <p>The columns: {@code verdict} (pass, flag, quarantine, drop or fail), {@code partition} (of the output),
 * {@code key} (null if the position identifies the row), {@code revision}, {@code child}, {@code id}, {@code source},
 * {@code arrived} (when the input was appended, in microseconds), {@code body} (the JSON object without id and source).
 *
 * <p>By position: the rows of an output partition arrive in the order of one source partition, so those up to the last
 * written one are skipped, by position ({@code revision}) and child. By key: a row is skipped if its key was written
 * with this revision or a later one since the last checkpoint; see {@link Written}.
 */
abstract class OutputWriter extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1L;

  private final String service;
  private final String output;
  private final String quarantine;
  /** What identifies a row: {@code position} (of its source), {@code key}, or {@code revision} (key and revision). */
  private final String identity;
  private transient Metrics metrics;
  private transient Map<String, Target> targets;
  private transient String ownPartition;

  OutputWriter(String service, String output, String quarantine, String identity) {
    this.service = service;
    this.output = output;
    this.quarantine = quarantine;
    this.identity = identity;
  }

  /** Opens a partition of the output or the quarantine for writing. */
  abstract Target target(String stream, String partition) throws IOException;

  final boolean keyed() {
    return !identity.equals("position");
  }

  final boolean revised() {
    return identity.equals("revision");
  }

  @Override
  public boolean open(long partition, long epoch) {
    metrics = Metrics.of(service);
    ReadTime.set(0); // not that of another task that ran on this thread
    targets = new HashMap<>();
    ownPartition = Long.toString(partition);
    return true;
  }

  @Override
  public final void process(Row row) {
    String verdict = row.getString(0);
    if (verdict.equals("drop")) {
      metrics.dropped();
      return;
    }
    if (verdict.equals("fail")) {
      throw new ConstraintViolated(row.getString(8));
    }
    String stream = verdict.equals("quarantine") ? quarantine : output;
    String partition = row.isNullAt(1) ? ownPartition : row.getString(1);
    try {
      Target target = found(stream, partition);
      if (target.has(row)) {
        metrics.skipped();
        return;
      }
      long arrived = row.isNullAt(7) ? 0 : row.getLong(7);
      long read = metrics.readMicros(); // Kafka tells on another thread that a record is in the log
      target.append(row, () -> count(verdict, arrived, read));
      target.note(row);
    } catch (IOException problem) {
      throw unwritten(problem);
    }
  }

  @Override
  public void close(Throwable problem) {}

  final UncheckedIOException unwritten(IOException problem) {
    return new UncheckedIOException("the output of " + service + " can't be written", problem);
  }

  private Target found(String stream, String partition) throws IOException {
    String key = stream + "/" + partition;
    Target found = targets.get(key);
    if (found == null) {
      found = target(stream, partition);
      targets.put(key, found);
    }
    return found;
  }

  private void count(String verdict, long arrivedMicros, long readMicros) {
    if (verdict.equals("quarantine")) {
      metrics.quarantined();
      return;
    }
    if (verdict.equals("flag")) {
      metrics.flagged();
    }
    metrics.written(arrivedMicros, readMicros);
  }

  /** A partition that is open for writing. */
  abstract static class Target {
    private final Written written;
    private long position;
    private long child;

    /** Rows are identified by position: {@code last} has position and child of the last row; null: there is none. */
    Target(long[] last) {
      written = null;
      position = last == null ? -1 : last[0];
      child = last == null ? 0 : last[1];
    }

    /** Rows are identified by key. */
    Target(Written written) {
      this.written = written;
    }

    /** Appends a row. Calls {@code written} when it is in the log. */
    abstract void append(Row row, Runnable written) throws IOException;

    final boolean has(Row row) {
      long revision = row.getLong(3);
      if (written != null) {
        return written.has(row.getString(2), revision);
      }
      return revision < position || revision == position && row.getInt(4) <= child;
    }

    final void note(Row row) {
      if (written != null) {
        written.note(row.getString(2), row.getLong(3));
      } else {
        position = row.getLong(3);
        child = row.getInt(4);
      }
    }
  }

  /** Ends a service with {@code on_violation: fail}. */
  public static final class ConstraintViolated extends RuntimeException {
    private static final long serialVersionUID = 1L;

    ConstraintViolated(String reason) {
      super("a constraint is violated, and on_violation is fail: " + reason);
    }
  }
}
