package tidegate;

import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A stream of a log as Spark sees it: as a stream, or all that it holds now as a table. */
final class StreamTable implements Table, SupportsRead {
  /**
   * {@code position} is the record's offset, {@code arrived} when it was appended, in microseconds.
   *
   * <p>A tick has no {@code value}. {@code tick} is the state partition that it is for; {@code caught_up} is the last
   * time at which the reader had nothing left to read, in microseconds; null if there was none since the last tick.
   */
  static final StructType SCHEMA =
      new StructType()
          .add("partition", DataTypes.StringType, false)
          .add("position", DataTypes.LongType, false)
          .add("arrived", DataTypes.LongType, false)
          .add("value", DataTypes.StringType, true)
          .add("tick", DataTypes.IntegerType, true)
          .add("caught_up", DataTypes.LongType, true);

  /** Opens a stream by the options of its reader. */
  interface Opening {
    OffsetStream open(CaseInsensitiveStringMap options);
  }

  private final String name;
  private final Opening opening;

  StreamTable(String name, Opening opening) {
    this.name = name;
    this.opening = opening;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public StructType schema() {
    return SCHEMA;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return () -> new StreamScan(options);
  }

  private final class StreamScan implements Scan {
    private final CaseInsensitiveStringMap options;

    StreamScan(CaseInsensitiveStringMap options) {
      this.options = options;
    }

    @Override
    public StructType readSchema() {
      return SCHEMA;
    }

    @Override
    public String description() {
      return name;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return opening.open(options);
    }

    @Override
    public Batch toBatch() {
      OffsetStream stream = opening.open(options);
      return new Batch() {
        @Override
        public InputPartition[] planInputPartitions() {
          return stream.planInputPartitions(stream.initialOffset(), stream.latestOffset());
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
          return stream.createReaderFactory();
        }
      };
    }
  }
}
