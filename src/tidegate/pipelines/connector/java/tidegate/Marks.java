package tidegate;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;

/** The position of a service in a partition of a source, from its output and the file {@code mark} next to it. */
public final class Marks {
  private static final byte[] SOURCE = "\"_src\":\"".getBytes(StandardCharsets.UTF_8);

  private Marks() {}

  /** Notes how far the source was dealt with, and where the output ended then: a shorter one has lost its end. */
  static void write(Path partition, long position) throws IOException {
    Path written = partition.resolve("mark.new");
    Files.writeString(written, position + " " + Partition.end(partition));
    Files.move(written, partition.resolve("mark"), StandardCopyOption.ATOMIC_MOVE);
  }

  /** Returns where to resume the source partition of an output partition, so that no event is missed; -1: unknown. */
  public static long resume(String partition) throws IOException {
    long marked = -1;
    try {
      String[] mark = Files.readString(Path.of(partition, "mark")).trim().split(" ");
      if (mark.length < 2 || Partition.end(Path.of(partition)) >= Long.parseLong(mark[1])) {
        marked = Long.parseLong(mark[0]);
      }
    } catch (NoSuchFileException none) {
      // no mark was written yet
    }
    long[] last = last(Path.of(partition));
    return Math.max(marked, last == null ? -1 : last[0]);
  }

  /** Returns position and child of the last record of an output partition; null if there is none. */
  static long[] last(Path partition) throws IOException {
    byte[] line = Partition.lastLine(partition);
    return line == null ? null : source(line);
  }

  /** Parses {@code "_src":"stream/partition:position"}, with {@code .child} if a record has several events. */
  private static long[] source(byte[] line) {
    int at = find(line, SOURCE, 0);
    if (at < 0) {
      return null;
    }
    int end = at + SOURCE.length;
    while (line[end] != '"') {
      end++;
    }
    String source = new String(Arrays.copyOfRange(line, at + SOURCE.length, end), StandardCharsets.UTF_8);
    String[] place = source.substring(source.lastIndexOf(':') + 1).split("\\.");
    return new long[] {Long.parseLong(place[0]), place.length > 1 ? Long.parseLong(place[1]) : 0};
  }

  static int find(byte[] text, byte[] word, int from) {
    for (int i = from; i <= text.length - word.length; i++) {
      int n = 0;
      while (n < word.length && text[i + n] == word[n]) {
        n++;
      }
      if (n == word.length) {
        return i;
      }
    }
    return -1;
  }
}
