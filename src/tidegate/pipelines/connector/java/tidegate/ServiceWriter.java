package tidegate;

import java.io.IOException;
import java.nio.file.Path;
import org.apache.spark.sql.Row;

/** Appends the rows of a service to the embedded log. */
public final class ServiceWriter extends OutputWriter {
  private static final long serialVersionUID = 1L;

  private final long segmentBytes;
  private final long sinceMicros;
  private final String floor;

  /**
   * @param output the folder of the output stream
   * @param quarantine the folder of the quarantine's stream
   * @param identity what identifies a row: {@code position} (of its source), {@code key}, or {@code revision} (key and
   *     revision)
   * @param sinceMicros with keys: the time of the last checkpoint; rows that were written later may be repeated
   * @param floor end offsets of the output when this version began; earlier records are those of another version
   */
  public ServiceWriter(
      String service,
      String output,
      String quarantine,
      long segmentBytes,
      String identity,
      long sinceMicros,
      String floor) {
    super(service, output, quarantine, identity);
    this.segmentBytes = segmentBytes;
    this.sinceMicros = sinceMicros;
    this.floor = floor;
  }

  /** Closes the files of the streams of a stopped service. */
  public static void closeStream(String folder) throws IOException {
    Appender.closeAll(Path.of(folder));
    Written.forget(folder);
  }

  @Override
  Target target(String stream, String partition) throws IOException {
    Path folder = Path.of(stream, partition);
    Appender appender = Appender.of(folder, segmentBytes);
    if (keyed()) {
      return new Files(Written.of(stream, partition, "", revised(), (from, take) -> read(folder, take)), appender);
    }
    return new Files(Marks.last(folder), appender);
  }

  private long read(Path folder, Written.Taker take) throws IOException {
    long own = LogOffset.fromJson(floor).positions.getOrDefault(folder.getFileName().toString(), 0L);
    try (LineReader lines = new LineReader(folder, Math.max(own, Partition.offsetAt(folder, sinceMicros)))) {
      for (byte[] line = lines.next(); line != null; line = lines.next()) {
        take.line(line);
      }
    }
    return Written.NO_OTHERS;
  }

  private static final class Files extends Target {
    private final Appender appender;

    Files(long[] last, Appender appender) {
      super(last);
      this.appender = appender;
    }

    Files(Written written, Appender appender) {
      super(written);
      this.appender = appender;
    }

    @Override
    void append(Row row, Runnable written) throws IOException {
      appender.append(Line.of(row, true, "\n"));
      written.run();
    }
  }
}
