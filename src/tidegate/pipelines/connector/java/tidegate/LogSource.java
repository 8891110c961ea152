package tidegate;

import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A stream of the embedded log as a streaming source, for micro-batches and for real-time mode.
 *
 * <p>Options: {@code path} (the stream's folder), {@code start} (JSON: an offset for each partition; partitions that
 * it does not name start at their beginning), {@code service} (whose metrics count what is read), {@code marks} (a
 * folder; see {@link RealTimeReader}), {@code idle_ms} (the longest pause between two looks at an idle partition).
 */
public final class LogSource implements TableProvider {
  /** {@code position} is the record's first byte, {@code arrived} when it was read, in microseconds. */
  static final StructType SCHEMA =
      new StructType()
          .add("partition", DataTypes.StringType, false)
          .add("position", DataTypes.LongType, false)
          .add("arrived", DataTypes.LongType, false)
          .add("value", DataTypes.StringType, false);

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new LogTable();
  }

  private static final class LogTable implements Table, SupportsRead {
    @Override
    public String name() {
      return "tidegate-log";
    }

    @Override
    public StructType schema() {
      return SCHEMA;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> new LogScan(options);
    }
  }

  private static final class LogScan implements Scan {
    private final CaseInsensitiveStringMap options;

    LogScan(CaseInsensitiveStringMap options) {
      this.options = options;
    }

    @Override
    public StructType readSchema() {
      return SCHEMA;
    }

    @Override
    public String description() {
      return "stream " + Path.of(options.get("path")).getFileName();
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new LogStream(options);
    }
  }
}
