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
 * <p>Options: {@code path} (the stream's folder), {@code start} (JSON: an offset for each partition; partitions that
 * it does not name start at their beginning), {@code service} (whose metrics count what is read), {@code marks} (a
 * folder; see {@link RealTimeReader}), {@code idle_ms} (the longest pause between two looks at an idle partition), {@code ticks} (how many state partitions
 * get ticks; see {@link Ticks}).
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
