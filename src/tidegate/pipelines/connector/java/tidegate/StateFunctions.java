package tidegate;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/** Registers the SQL functions that plans with state call. */
public final class StateFunctions {
  private StateFunctions() {}

  /** Not deterministic, so that Spark calls each once per row: the functions have their own memory. */
  public static void register(SparkSession session) {
    session.udf().register(
        "tidegate_clock", functions.udf(new SourceClock(), DataTypes.StringType).asNondeterministic());
    session.udf().register(
        "tidegate_passes", functions.udf(new PassCounter(), DataTypes.BooleanType).asNondeterministic());
    session.udf().register(
        "tidegate_read_time", functions.udf(new ReadTime(), DataTypes.LongType).asNondeterministic());
  }
}
