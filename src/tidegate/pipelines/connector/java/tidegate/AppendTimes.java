package tidegate;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * Reads the time index of one segment along with its records.
 *
 * <p>A writer adds an entry before it writes the first record of the entry, so whoever sees a record finds its entry.
 */
final class AppendTimes implements Closeable {
  private static final int ENTRY = 2 * Long.BYTES;

  private final Path path;
  private final ByteBuffer entries = ByteBuffer.allocate(1024 * ENTRY).order(ByteOrder.LITTLE_ENDIAN).limit(0);
  private FileChannel file;
  private long position;
  private long time;
  private long offset = -1;
  private boolean isMore;

  AppendTimes(Path path) {
    this.path = path;
  }

  /**
   * When the record at an offset was appended, at the earliest; 0: not known. Offsets never go back. {@code isNew}: the
   * file may have grown since the last call.
   */
  long before(long record, boolean isNew) throws IOException {
    boolean mayGrow = isNew;
    while (true) {
      while (entries.remaining() >= ENTRY && entries.getLong(entries.position() + Long.BYTES) <= record) {
        long next = entries.getLong();
        long begin = entries.getLong();
        if (begin >= offset) { // a crash may leave entries of records that were cut off
          time = next;
          offset = begin;
        }
      }
      if (entries.remaining() >= ENTRY || !mayGrow && !isMore) {
        return time;
      }
      mayGrow = fill();
    }
  }

  private boolean fill() throws IOException {
    if (file == null) {
      try {
        file = FileChannel.open(path, StandardOpenOption.READ);
      } catch (NoSuchFileException none) {
        return false;
      }
    }
    entries.clear();
    int got = file.read(entries, position);
    int whole = Math.max(0, got) / ENTRY * ENTRY;
    position += whole;
    isMore = whole == entries.capacity();
    entries.position(0).limit(whole);
    return whole > 0;
  }

  @Override
  public void close() throws IOException {
    if (file != null) {
      file.close();
      file = null;
    }
  }
}
