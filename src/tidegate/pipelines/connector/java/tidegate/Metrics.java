package tidegate;

import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/** What the tasks of a service have done in this JVM. */
public final class Metrics {
  /** Buckets of latencies in microseconds: sixteen for every doubling. */
  private static final int STEPS = 16;
  private static final int BUCKETS = 40 * STEPS;
  /** Bounds of the counts that are kept, in microseconds, as Python's LATENCY_BOUNDS_S has them. */
  private static final long[] BOUNDS = {
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000
  };
  private static final Map<String, Metrics> ALL = new ConcurrentHashMap<>();

  private final AtomicLong records = new AtomicLong();
  private final AtomicLong bytes = new AtomicLong();
  private final AtomicLong missed = new AtomicLong();
  private final AtomicLong written = new AtomicLong();
  private final AtomicLong quarantined = new AtomicLong();
  private final AtomicLong flagged = new AtomicLong();
  private final AtomicLong dropped = new AtomicLong();
  private final AtomicLong skipped = new AtomicLong();
  private final AtomicLong late = new AtomicLong();
  private final AtomicLong filtered = new AtomicLong();
  private final AtomicLong used = new AtomicLong();
  private final AtomicLong results = new AtomicLong();
  private final AtomicLong restored = new AtomicLong();
  /** How many events each state partition holds. */
  private final Map<String, Long> held = new ConcurrentHashMap<>();
  private volatile boolean isHeldKnown = true;
  /** The watermark of each state partition, in microseconds. */
  private final Map<String, Long> watermarks = new ConcurrentHashMap<>();
  private final Map<String, AtomicLong> reached = new ConcurrentHashMap<>();
  private final AtomicLongArray latencies = new AtomicLongArray(BUCKETS);
  private final AtomicLongArray within = new AtomicLongArray(BOUNDS.length + 1);
  private final AtomicLong waited = new AtomicLong();

  static Metrics of(String service) {
    return ALL.computeIfAbsent(service, name -> new Metrics());
  }

  static long nowMicros() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
  }

  void read(long length, long missedBytes) {
    records.incrementAndGet();
    bytes.addAndGet(length);
    if (missedBytes > missed.get()) {
      missed.set(missedBytes);
    }
  }

  void written(long arrivedMicros) {
    written.incrementAndGet();
    if (arrivedMicros > 0) {
      long micros = Math.max(0, nowMicros() - arrivedMicros);
      latencies.incrementAndGet(bucket(micros));
      waited.addAndGet(micros);
      int n = 0;
      while (n < BOUNDS.length && micros > BOUNDS[n]) {
        n++;
      }
      within.incrementAndGet(n);
    }
  }

  /** How far a partition of an input was read. */
  AtomicLong reached(String source) {
    return reached.computeIfAbsent(source, name -> new AtomicLong());
  }

  void quarantined() {
    quarantined.incrementAndGet();
  }

  void flagged() {
    flagged.incrementAndGet();
  }

  void dropped() {
    dropped.incrementAndGet();
  }

  void skipped() {
    skipped.incrementAndGet();
  }

  /** An event came after its window was closed. It is counted as quarantined or dropped too. */
  void late() {
    late.incrementAndGet();
  }

  /** A filter removed an event, or an operator found nothing for it. */
  void filtered() {
    filtered.incrementAndGet();
  }

  /** The state has done with events: results hold them, or can't any longer. */
  void used(long count) {
    used.addAndGet(count);
  }

  /** Operators with state made events of others. */
  void results(long count) {
    results.addAndGet(count);
  }

  /** How many events a state partition holds now. */
  void held(String partition, long count) {
    held.put(partition, count);
  }

  /** A state partition has a watermark; none is told before every source has sent an event. */
  void watermark(String partition, long micros) {
    if (micros != Long.MIN_VALUE) {
      watermarks.put(partition, micros);
    }
  }

  /** A state partition begins in a run of its service with so many events; null: its state does not tell. */
  void restore(String partition, Long count) {
    if (held.putIfAbsent(partition, count == null ? 0 : count) == null) {
      isHeldKnown &= count != null;
      restored.addAndGet(count == null ? 0 : count);
    }
  }

  /**
   * Begins to count anew, as a service with state starts: it reads again what it has read since its last checkpoint.
   */
  public static void start(String service) {
    Metrics of = of(service);
    for (AtomicLong count : new AtomicLong[] {
        of.records, of.bytes, of.written, of.quarantined, of.flagged, of.dropped, of.skipped, of.late, of.filtered,
        of.used, of.results, of.restored}) {
      count.set(0);
    }
    of.held.clear();
    of.watermarks.clear();
    of.isHeldKnown = true;
    SourceClock.forget(service);
  }

  private static int bucket(long micros) {
    double place = Math.log(Math.max(1, micros)) / Math.log(2) * STEPS;
    return Math.min(BUCKETS - 1, (int) place);
  }

  /** The counts since the start as JSON, latencies by their bounds too; and those since the last call, in milliseconds. */
  public static String snapshot(String service) {
    Metrics of = of(service);
    long[] counts = new long[BUCKETS];
    long total = 0;
    for (int n = 0; n < BUCKETS; n++) {
      counts[n] = of.latencies.getAndSet(n, 0);
      total += counts[n];
    }
    return String.format(
        "{\"read\":%d,\"bytes\":%d,\"missed_bytes\":%d,\"written\":%d,\"quarantined\":%d,\"flagged\":%d,"
            + "\"dropped\":%d,\"skipped\":%d,\"late\":%d,\"filtered\":%d,\"used\":%d,\"results\":%d,"
            + "\"restored\":%s,\"held\":%s,\"watermarks\":%s,\"reached\":%s,\"latency_ms\":{\"p50\":%s,\"p99\":%s,\"max\":%s},"
            + "\"latencies\":%s,\"latency_micros\":%d}",
        of.records.get(), of.bytes.get(), of.missed.get(), of.written.get(), of.quarantined.get(), of.flagged.get(),
        of.dropped.get(), of.skipped.get(), of.late.get(), of.filtered.get(), of.used.get(),
        of.results.get(), of.isHeldKnown ? of.restored.get() : "null", of.isHeldKnown ? sum(of.held) : "null",
        new LogOffset(of.watermarks).json(), new LogOffset(of.positions()).json(),
        quantile(counts, total, 0.5), quantile(counts, total, 0.99), quantile(counts, total, 1.0),
        of.within, of.waited.get());
  }

  private static long sum(Map<String, Long> counts) {
    return counts.values().stream().mapToLong(Long::longValue).sum();
  }

  private Map<String, Long> positions() {
    Map<String, Long> found = new HashMap<>();
    reached.forEach((source, position) -> found.put(source, position.get()));
    return found;
  }

  /** Forgets a service that was removed. */
  public static void forget(String service) {
    ALL.remove(service);
    SourceClock.forget(service);
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
