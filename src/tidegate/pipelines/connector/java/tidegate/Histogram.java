package tidegate;

import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/** Latencies of events: counts since the start by fixed bounds, and quantiles since the last snapshot. Thread-safe. */
final class Histogram {
  /** Buckets of the quantiles, in microseconds: sixteen for every doubling. */
  private static final int STEPS = 16;
  private static final int BUCKETS = 52 * STEPS;
  /** Bounds of the counts that are kept, in microseconds, as Python's LATENCY_BOUNDS_S has them. */
  private static final long[] BOUNDS = {
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000, 30_000_000, 60_000_000, 300_000_000
  };

  private final AtomicLongArray recent = new AtomicLongArray(BUCKETS);
  private final AtomicLongArray within = new AtomicLongArray(BOUNDS.length + 1);
  private final AtomicLong sum = new AtomicLong();

  void add(long latency) {
    long micros = Math.max(0, latency);
    recent.incrementAndGet(bucket(micros));
    sum.addAndGet(micros);
    int n = 0;
    while (n < BOUNDS.length && micros > BOUNDS[n]) {
      n++;
    }
    within.incrementAndGet(n);
  }

  /** The members of a JSON object whose names begin with {@code name}; begins to collect new quantiles. */
  String json(String name) {
    long[] counts = new long[BUCKETS];
    long total = 0;
    for (int n = 0; n < BUCKETS; n++) {
      counts[n] = recent.getAndSet(n, 0);
      total += counts[n];
    }
    return String.format(
        "\"%s_ms\":{\"p50\":%s,\"p99\":%s,\"max\":%s},\"%s_counts\":%s,\"%s_micros\":%d",
        name, quantile(counts, total, 0.5), quantile(counts, total, 0.99), quantile(counts, total, 1.0), name, within,
        name, sum.get());
  }

  private static int bucket(long micros) {
    double place = Math.log(Math.max(1, micros)) / Math.log(2) * STEPS;
    return Math.min(BUCKETS - 1, (int) place);
  }

  private static String quantile(long[] counts, long total, double share) {
    if (total == 0) {
      return "null";
    }
    long wanted = Math.max(1, (long) Math.ceil(share * total));
    int n = -1;
    for (long seen = 0; seen < wanted; ) {
      seen += counts[++n];
    }
    return String.format(java.util.Locale.ROOT, "%.3f", Math.pow(2, (n + 0.5) / STEPS) / 1_000);
  }
}
