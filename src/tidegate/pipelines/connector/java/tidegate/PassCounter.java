package tidegate;

import org.apache.spark.sql.api.java.UDF2;

/** Counts the records of a service that a filter removes; a column around the filter's condition. */
public final class PassCounter implements UDF2<String, Boolean, Boolean> {
  private static final long serialVersionUID = 1L;

  private transient Metrics metrics;

  @Override
  public Boolean call(String service, Boolean matches) {
    boolean passes = matches != null && matches;
    if (!passes) {
      if (metrics == null) {
        metrics = Metrics.of(service);
      }
      metrics.filtered();
    }
    return passes;
  }
}
