package tidegate;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * The one writer of a partition: appends lines, begins new segments, keeps the time index.
 *
 * <p>Uses plain streams, not channels: Spark stops a task by an interrupt, which would close the channel while another
 * thread writes to it.
 */
final class Appender {
  private static final long TIME_EVERY_BYTES = 64 * 1024;
  private static final long TIME_EVERY_NANOS = TimeUnit.MILLISECONDS.toNanos(10);
  private static final int ENTRY = 2 * Long.BYTES;
  private static final Map<Path, Appender> OPEN = new ConcurrentHashMap<>();

  private final Path folder;
  private final long segmentBytes;
  private FileOutputStream file;
  private long base;
  private long end;
  private long timeDue;
  private long timed;

  /** Returns the appender of a partition in this JVM. The first call truncates an incomplete record at its end. */
  static Appender of(Path folder, long segmentBytes) throws IOException {
    Appender found = OPEN.get(folder);
    if (found == null) {
      synchronized (OPEN) {
        found = OPEN.get(folder);
        if (found == null) {
          found = new Appender(folder, segmentBytes);
          OPEN.put(folder, found);
        }
      }
    }
    return found;
  }

  /** Closes all appenders of the stream in a folder. */
  static void closeAll(Path stream) throws IOException {
    synchronized (OPEN) {
      for (Path folder : List.copyOf(OPEN.keySet())) {
        if (folder.startsWith(stream)) {
          OPEN.remove(folder).close();
        }
      }
    }
  }

  private Appender(Path folder, long segmentBytes) throws IOException {
    this.folder = folder;
    this.segmentBytes = segmentBytes;
    Files.createDirectories(folder);
    List<Long> bases = Partition.segments(folder);
    long last = bases.isEmpty() ? 0 : bases.get(bases.size() - 1);
    end = last + cutTornEnd(Partition.segment(folder, last));
    open(last);
    timeDue = end;
  }

  /** Appends one line, its newline included. */
  synchronized void append(byte[] line) throws IOException {
    if (end - base >= segmentBytes) {
      roll();
    }
    if (end >= timeDue || System.nanoTime() - timed >= TIME_EVERY_NANOS) {
      noteTime();
    }
    file.write(line);
    end += line.length;
  }

  private void open(long at) throws IOException {
    base = at;
    file = new FileOutputStream(Partition.segment(folder, at).toFile(), true);
  }

  /** Truncates an incomplete record that a crash has left. Returns the remaining length. */
  private static long cutTornEnd(Path segment) throws IOException {
    try (FileChannel found =
        FileChannel.open(
            segment, StandardOpenOption.READ, StandardOpenOption.WRITE, StandardOpenOption.CREATE)) {
      long whole = Partition.wholeLines(found, found.size());
      found.truncate(whole);
      return whole;
    }
  }

  private void roll() throws IOException {
    noteTime();
    close();
    open(end);
    timeDue = end;
  }

  private void noteTime() throws IOException {
    ByteBuffer entry = ByteBuffer.allocate(ENTRY).order(ByteOrder.LITTLE_ENDIAN);
    entry.putLong(Metrics.nowMicros()).putLong(end);
    try (RandomAccessFile times = new RandomAccessFile(Partition.times(folder, base).toFile(), "rw")) {
      times.seek(times.length() / ENTRY * ENTRY); // overwrites an incomplete entry that a crash has left
      times.write(entry.array());
    }
    timeDue = end + TIME_EVERY_BYTES;
    timed = System.nanoTime();
  }

  private synchronized void close() throws IOException {
    file.getFD().sync();
    file.close();
  }
}
