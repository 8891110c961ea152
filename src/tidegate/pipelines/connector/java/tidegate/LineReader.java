package tidegate;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Reads the complete lines of a partition from an offset on, while others append to it and delete old segments. */
final class LineReader implements Closeable {
  private static final long MOST_LOST = 1L << 32;
  private static final long LOST_LOOK_EVERY = TimeUnit.SECONDS.toNanos(1);

  private final Path folder;
  private FileChannel file;
  private long lostLook = System.nanoTime() - LOST_LOOK_EVERY;
  private long base;
  private byte[] buffer = new byte[64 * 1024];
  private int begin;
  private int end;
  private int searched;
  /** The offset of the next line. */
  private long position;
  /** Bytes that had expired before they were read. */
  private long missed;
  private AppendTimes times;
  /** Where the line that was read last begins, and whether bytes were read since its time was looked up. */
  private long line;
  private boolean isNew;
  /** A time at which everything up to {@link #position} had been read, in microseconds: what follows came later. */
  private long emptyAt;

  LineReader(Path folder, long position) {
    this.folder = folder;
    this.position = position;
  }

  long position() {
    return position;
  }

  long missed() {
    return missed;
  }

  /**
   * When the line that was read last was appended, in microseconds: at the earliest by the time index, and never before
   * this reader found nothing left to read. {@code now} where neither is known.
   */
  long appended(long now) throws IOException {
    long time = times == null ? 0 : times.before(line, isNew);
    isNew = false;
    long at = Math.max(time, emptyAt);
    return at == 0 ? now : Math.min(at, now);
  }

  /** Returns the next complete line without its newline; null if there is none yet. */
  byte[] next() throws IOException {
    while (true) {
      for (int i = searched; i < end; i++) {
        if (buffer[i] == '\n') {
          byte[] found = Arrays.copyOfRange(buffer, begin, i);
          line = position;
          position += i + 1 - begin;
          begin = searched = i + 1;
          return found;
        }
      }
      searched = end;
      long look = Metrics.nowMicros();
      if (!fill() && !nextSegment() && !skipLost()) {
        if (file != null) { // else there may be segments that could not be opened
          emptyAt = look;
        }
        return null;
      }
    }
  }

  private boolean fill() throws IOException {
    if (file == null && !open()) {
      return false;
    }
    if (begin > 0) {
      System.arraycopy(buffer, begin, buffer, 0, end - begin);
      end -= begin;
      searched -= begin;
      begin = 0;
    }
    if (end == buffer.length) {
      buffer = Arrays.copyOf(buffer, 2 * buffer.length);
    }
    int got = file.read(ByteBuffer.wrap(buffer, end, buffer.length - end), position - base + end);
    if (got > 0) {
      end += got;
      isNew = true;
      return true;
    }
    // A writer that recovers may truncate an incomplete line, so it is read again from its first byte.
    begin = end = searched = 0;
    return false;
  }

  private boolean open() throws IOException {
    List<Long> bases = Partition.segments(folder);
    if (bases.isEmpty()) {
      return false;
    }
    if (position < bases.get(0)) {
      missed += bases.get(0) - position;
      position = bases.get(0);
    }
    int n = bases.size() - 1;
    while (bases.get(n) > position) {
      n--;
    }
    try {
      file = FileChannel.open(Partition.segment(folder, bases.get(n)), StandardOpenOption.READ);
      base = bases.get(n);
      times = new AppendTimes(Partition.times(folder, base));
    } catch (NoSuchFileException expired) {
      return false;
    }
    return true;
  }

  /** At the end of a segment, closes it if the next one exists. Returns true if it does. */
  private boolean nextSegment() throws IOException {
    if (file == null || position == base || !Files.exists(Partition.segment(folder, position))) {
      return false;
    }
    close();
    return true;
  }

  /**
   * Moves to the next segment there is, if what follows in this one, or a segment, is lost. Looks once a second, at the
   * end of what can be read: a segment that follows is complete.
   */
  private boolean skipLost() throws IOException {
    long now = System.nanoTime();
    if (file == null || now - lostLook < LOST_LOOK_EVERY) {
      return false;
    }
    for (long next : Partition.segments(folder)) {
      if (next > position) {
        while (fill()) { // it may have grown before the next one was begun
          if (hasLine()) {
            return true;
          }
        }
        missed += next - position < MOST_LOST ? next - position : 1; // a restored log continues far away
        position = next;
        begin = end = searched = 0;
        close();
        return true;
      }
    }
    lostLook = now;
    return false;
  }

  private boolean hasLine() {
    for (int i = searched; i < end; i++) {
      if (buffer[i] == '\n') {
        return true;
      }
    }
    return false;
  }

  @Override
  public void close() throws IOException {
    if (file != null) {
      file.close();
      file = null;
      times.close();
    }
  }
}
