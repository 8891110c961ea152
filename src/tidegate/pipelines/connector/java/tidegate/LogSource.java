package tidegate;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A stream of the embedded log as a streaming source.
 *
 * <p>Options: {@code path} (the stream's folder), {@code start} (JSON: an offset for each partition; absent partitions
 * start at their oldest record), {@code service} (its metrics count the records), {@code marks} (a folder; see {@link
 * RealTimeReader}), {@code idle_ms} (the longest pause between two reads of an idle partition), {@code ticks} (the
 * number of state partitions that get ticks; see {@link Ticks}).
 */
public final class LogSource implements TableProvider {
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return StreamTable.SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new StreamTable("tidegate-log", LogStream::new);
  }
}
