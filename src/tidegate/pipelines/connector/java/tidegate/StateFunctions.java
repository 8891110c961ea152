package tidegate;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/** Registers the functions that plans with state call in Spark's SQL. */
public final class StateFunctions {
  private StateFunctions() {}

  /** They have a memory of their own, so Spark must call each once per row. */
  public static void register(SparkSession session) {
    session.udf().register(
        "tidegate_clock", functions.udf(new SourceClock(), DataTypes.StringType).asNondeterministic());
    session.udf().register(
        "tidegate_passes", functions.udf(new PassCounter(), DataTypes.BooleanType).asNondeterministic());
    session.udf().register(
        "tidegate_read_time", functions.udf(new ReadTime(), DataTypes.LongType).asNondeterministic());
  }
}
