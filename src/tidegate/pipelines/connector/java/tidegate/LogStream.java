package tidegate;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The driver's side of the source: lists the partitions and their end offsets. */
final class LogStream extends OffsetStream {
  private final CaseInsensitiveStringMap options;
  private final Path folder;

  LogStream(CaseInsensitiveStringMap options) {
    super(options.getOrDefault("start", "{}"), options.getInt("ticks", 0));
    this.options = options;
    this.folder = Path.of(options.get("path"));
  }

  @Override
  Map<String, Long> begins() {
    return offsets(Partition::begin);
  }

  @Override
  Map<String, Long> ends() {
    return offsets(Partition::end);
  }

  @Override
  InputPartition range(String partition, long begin, long end, long seen) {
    return new PartitionRange(folder.toString(), partition, begin, end, seen, options);
  }

  /** The description of this source in Spark's progress reports, by which the engine knows it. */
  @Override
  public String toString() {
    return "stream:" + Path.of(options.get("path")).getFileName();
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Readers();
  }

  private interface Place {
    long in(Path partition) throws IOException;
  }

  private Map<String, Long> offsets(Place place) {
    Map<String, Long> positions = new TreeMap<>();
    try (DirectoryStream<Path> partitions = Files.newDirectoryStream(folder, Files::isDirectory)) {
      for (Path partition : partitions) {
        positions.put(partition.getFileName().toString(), place.in(partition));
      }
    } catch (IOException problem) {
      throw new UncheckedIOException("the stream in " + folder + " can't be read", problem);
    }
    return positions;
  }

  /** The part of a partition that one task reads. */
  static final class PartitionRange implements InputPartition {
    private static final long serialVersionUID = 1L;
    final String folder;
    final String partition;
    final long begin;
    final long end;
    final long seen;
    final String stream;
    final String service;
    final String marks;
    final long idleMillis;
    final int ticks;

    PartitionRange(String folder, String partition, long begin, long end, long seen, CaseInsensitiveStringMap options) {
      this.folder = folder;
      this.partition = partition;
      this.begin = begin;
      this.end = end;
      this.seen = seen;
      this.stream = Path.of(folder).getFileName().toString();
      this.service = options.getOrDefault("service", "");
      this.marks = options.getOrDefault("marks", "");
      this.idleMillis = options.getLong("idle_ms", 5);
      this.ticks = options.getInt("ticks", 0);
    }
  }

  private static final class Readers implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition range) {
      return new RealTimeReader((PartitionRange) range);
    }
  }
}
