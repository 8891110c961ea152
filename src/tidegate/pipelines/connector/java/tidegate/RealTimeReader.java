package tidegate;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads one partition: up to an offset in a micro-batch, without end in real-time mode.
 *
 * <p>If {@code marks} is the folder of the output stream, the reader stores its position once per second in the file
 * {@code mark} of the output partition. A stateless task is one thread that passes each row to the writer before it
 * reads the next one. So all records before the position are processed, including those without an output, and a
 * restart resumes there.
 */
final class RealTimeReader implements SupportsRealTimeRead<InternalRow> {
  private static final long MARK_EVERY = TimeUnit.SECONDS.toNanos(1);
  private static final int BUSY_LOOKS = 50;

  private final LineReader lines;
  private final LogStream.PartitionRange range;
  private final UTF8String partition;
  private final GenericInternalRow row = new GenericInternalRow(6);
  private final Ticks ticks;
  private final Metrics metrics;
  private final AtomicLong reached;
  private final Path marks;
  private long marked = -1;
  private long markDue = System.nanoTime() + MARK_EVERY;
  private boolean isBatch;

  RealTimeReader(LogStream.PartitionRange range) {
    this.range = range;
    this.partition = UTF8String.fromString(range.partition);
    this.lines = new LineReader(Path.of(range.folder, range.partition), range.begin);
    this.ticks = new Ticks(range.ticks);
    this.row.update(0, partition);
    this.metrics = Metrics.of(range.service);
    this.reached = metrics.reached(range.stream + "/" + range.partition);
    this.reached.set(range.begin);
    this.marks = range.marks.isEmpty() ? null : Path.of(range.marks, range.stream + "." + range.partition);
  }

  @Override
  public boolean next() throws IOException {
    if (!isBatch) {
      isBatch = true;
      metrics.batch();
    }
    return lines.position() < range.end && step() || ticks.nextOfBatch(row, lines.position(), range.seen);
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public PartitionOffset getOffset() {
    return new OffsetStream.Reached(range.partition, lines.position());
  }

  @Override
  public RecordStatus nextWithTimeout(Long startMillis, Long timeoutMillis) throws IOException {
    return nextWithTimeout(timeoutMillis);
  }

  @Override
  public RecordStatus nextWithTimeout(Long timeoutMillis) throws IOException {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
    long pause = 1;
    for (int looks = 1; ; looks++) {
      if (ticks.next(row, lines.position()) || step()) {
        return RecordStatus.newStatusWithArrivalTimeMs(System.currentTimeMillis());
      }
      ticks.caughtUp();
      long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
      if (left <= 0) {
        return RecordStatus.newStatusWithoutArrivalTime(false);
      }
      if (looks % BUSY_LOOKS == 0) {
        pause = Math.min(range.idleMillis, pause * 2);
      }
      try {
        Thread.sleep(Math.max(1, Math.min(pause, ticks.millisUntilDue(left))));
      } catch (InterruptedException stopped) {
        throw new InterruptedIOException();
      }
    }
  }

  private boolean step() throws IOException {
    long nanos = System.nanoTime();
    if (marks != null && nanos >= markDue) {
      mark();
      markDue = nanos + MARK_EVERY;
    }
    byte[] line = lines.next();
    if (line == null) {
      return false;
    }
    row.update(1, lines.position() - line.length - 1);
    long now = Metrics.nowMicros();
    ReadTime.set(isBatch ? 0 : now); // Spark may gather the rows of a batch
    row.update(2, lines.appended(now));
    row.update(3, UTF8String.fromBytes(line));
    row.update(4, null);
    row.update(5, null);
    metrics.read(line.length + 1, lines.missed());
    reached.set(lines.position());
    return true;
  }

  private void mark() throws IOException {
    if (lines.position() != marked) {
      Files.createDirectories(marks);
      marked = lines.position();
      Marks.write(marks, marked);
    }
  }

  @Override
  public void close() throws IOException {
    lines.close();
  }
}
