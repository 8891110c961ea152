package tidegate;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A stream that is a Kafka topic as a streaming source.
 *
 * <p>Options: {@code cluster} (the name of all clients' settings; see {@link KafkaClients#remember}), {@code topic},
 * {@code stream} (its name in metrics), {@code start} (JSON: an offset for each partition; absent partitions start at
 * their oldest record), {@code service} (its metrics count the records), {@code group} (the group that readers commit
 * their position to; see {@link KafkaReader}), {@code ticks} (the number of state partitions that get ticks; see {@link
 * Ticks}).
 */
public final class KafkaSource implements TableProvider {
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return StreamTable.SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new StreamTable("tidegate-kafka", KafkaStream::new);
  }
}
