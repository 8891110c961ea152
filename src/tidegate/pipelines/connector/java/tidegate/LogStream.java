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
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The driver's side of the source: which partitions there are, and how far they go. */
final class LogStream implements MicroBatchStream, SupportsRealTimeMode {
  private final CaseInsensitiveStringMap options;
  private final Path folder;
  private final LogOffset start;

  LogStream(CaseInsensitiveStringMap options) {
    this.options = options;
    this.folder = Path.of(options.get("path"));
    this.start = LogOffset.fromJson(options.getOrDefault("start", "{}"));
  }

  @Override
  public Offset initialOffset() {
    return offsets((name, partition) -> start.positions.getOrDefault(name, Partition.begin(partition)));
  }

  @Override
  public Offset latestOffset() {
    return offsets((name, partition) -> Math.max(Partition.end(partition), start.positions.getOrDefault(name, 0L)));
  }

  @Override
  public Offset deserializeOffset(String json) {
    return LogOffset.fromJson(json);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset from, Offset to) {
    return plan((LogOffset) from, (LogOffset) to);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset from) {
    LogOffset open = new LogOffset(((LogOffset) initialOffset()).positions);
    open.positions.replaceAll((name, position) -> Long.MAX_VALUE);
    return plan((LogOffset) from, open);
  }

  /** A partition that is new since {@code from} is read from where the service starts in it. */
  private InputPartition[] plan(LogOffset from, LogOffset to) {
    Map<String, Long> begins = ((LogOffset) initialOffset()).positions;
    return to.positions.entrySet().stream()
        .map(
            each -> {
              long position = from.positions.getOrDefault(each.getKey(), begins.getOrDefault(each.getKey(), 0L));
              return new Piece(folder.toString(), each.getKey(), position, each.getValue(), options);
            })
        .filter(piece -> piece.begin < piece.end)
        .toArray(InputPartition[]::new);
  }

  @Override
  public Offset mergeOffsets(PartitionOffset[] reached) {
    Map<String, Long> positions = new TreeMap<>();
    for (PartitionOffset each : reached) {
      Reached one = (Reached) each;
      positions.put(one.partition, one.position);
    }
    return new LogOffset(positions);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Readers();
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  private interface Place {
    long in(String name, Path partition) throws IOException;
  }

  private LogOffset offsets(Place place) {
    Map<String, Long> positions = new TreeMap<>();
    try (DirectoryStream<Path> partitions = Files.newDirectoryStream(folder, Files::isDirectory)) {
      for (Path partition : partitions) {
        String name = partition.getFileName().toString();
        positions.put(name, place.in(name, partition));
      }
    } catch (IOException problem) {
      throw new UncheckedIOException("the stream in " + folder + " can't be read", problem);
    }
    return new LogOffset(positions);
  }

  /** How far a reader got. */
  static final class Reached implements PartitionOffset {
    private static final long serialVersionUID = 1L;
    final String partition;
    final long position;

    Reached(String partition, long position) {
      this.partition = partition;
      this.position = position;
    }
  }

  /** What one task reads. */
  static final class Piece implements InputPartition {
    private static final long serialVersionUID = 1L;
    final String folder;
    final String partition;
    final long begin;
    final long end;
    final String stream;
    final String service;
    final String marks;
    final long idleMillis;

    Piece(String folder, String partition, long begin, long end, CaseInsensitiveStringMap options) {
      this.folder = folder;
      this.partition = partition;
      this.begin = begin;
      this.end = end;
      this.stream = Path.of(folder).getFileName().toString();
      this.service = options.getOrDefault("service", "");
      this.marks = options.getOrDefault("marks", "");
      this.idleMillis = options.getLong("idle_ms", 5);
    }
  }

  private static final class Readers implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition piece) {
      return new RealTimeReader((Piece) piece);
    }
  }
}
