package tidegate;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The files of one partition of a stream: segments named by the offset of their first byte. */
final class Partition {
  private static final String ENDING = ".log";
  private static final int BLOCK = 64 * 1024;

  private Partition() {}

  /** Returns the first offset of each segment, ascending. */
  static List<Long> segments(Path folder) throws IOException {
    List<Long> found = new ArrayList<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*" + ENDING)) {
      for (Path file : files) {
        String name = file.getFileName().toString();
        found.add(Long.parseLong(name.substring(0, name.length() - ENDING.length())));
      }
    } catch (NoSuchFileException gone) {
      return found;
    }
    Collections.sort(found);
    return found;
  }

  static Path segment(Path folder, long base) {
    return folder.resolve(String.format("%020d%s", base, ENDING));
  }

  static Path times(Path folder, long base) {
    return folder.resolve(String.format("%020d.times", base));
  }

  /** Returns the offset after the last complete record: a batch must not end inside a record. */
  static long end(Path folder) throws IOException {
    List<Long> bases = segments(folder);
    if (bases.isEmpty()) {
      return 0;
    }
    long base = bases.get(bases.size() - 1);
    try (FileChannel file = FileChannel.open(segment(folder, base), StandardOpenOption.READ)) {
      return base + wholeLines(file, file.size());
    }
  }

  /** Returns the offset of the oldest retained record. */
  static long begin(Path folder) throws IOException {
    List<Long> bases = segments(folder);
    return bases.isEmpty() ? 0 : bases.get(0);
  }

  /** Returns the offset in the last entry of the time index before a time. */
  static long offsetAt(Path folder, long micros) throws IOException {
    List<Long> bases = segments(folder);
    long at = bases.isEmpty() ? 0 : bases.get(0);
    for (long base : bases) {
      Path times = times(folder, base);
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

  /** Returns the number of bytes of a file up to its last complete line. */
  static long wholeLines(FileChannel file, long end) throws IOException {
    byte[] block = new byte[BLOCK];
    while (end > 0) {
      int length = (int) Math.min(BLOCK, end);
      read(file, end - length, block, length);
      for (int i = length - 1; i >= 0; i--) {
        if (block[i] == '\n') {
          return end - length + i + 1;
        }
      }
      end -= length;
    }
    return 0;
  }

  /** Returns the last complete line of a partition without its newline; null if there is none. */
  static byte[] lastLine(Path folder) throws IOException {
    List<Long> bases = segments(folder);
    for (int n = bases.size() - 1; n >= 0; n--) {
      try (FileChannel file = FileChannel.open(segment(folder, bases.get(n)), StandardOpenOption.READ)) {
        long end = wholeLines(file, file.size());
        if (end > 0) {
          long begin = wholeLines(file, end - 1);
          byte[] line = new byte[(int) (end - 1 - begin)];
          read(file, begin, line, line.length);
          return line;
        }
      }
    }
    return null;
  }

  private static void read(FileChannel file, long at, byte[] into, int length) throws IOException {
    ByteBuffer buffer = ByteBuffer.wrap(into, 0, length);
    while (buffer.hasRemaining()) {
      int got = file.read(buffer, at + buffer.position());
      if (got < 0) {
        throw new IOException("a segment became shorter while it was read");
      }
    }
  }
}
