package tidegate;

import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Counts and latencies of the tasks of a service in this JVM. Thread-safe. */
public final class Metrics {
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
  /** Number of events in each state partition. */
  private final Map<String, Long> held = new ConcurrentHashMap<>();
  private volatile boolean isHeldKnown = true;
  /** The watermark of each state partition, in microseconds. */
  private final Map<String, Long> watermarks = new ConcurrentHashMap<>();
  private final Map<String, AtomicLong> reached = new ConcurrentHashMap<>();
  /** From the append of the input to that of the output, and the part of it since the input was read. */
  private final Histogram latency = new Histogram();
  private final Histogram processing = new Histogram();
  /** When the last micro-batch began to read; 0 in real-time mode. */
  private volatile long batchRead;

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

  /** A micro-batch begins to read. */
  void batch() {
    batchRead = nowMicros();
  }

  /** When the row that this thread writes was read; 0: not known. */
  long readMicros() {
    long read = ReadTime.get();
    return read > 0 ? read : batchRead;
  }

  /** An event was written whose record was appended and read at these times; 0: not known. */
  void written(long appendedMicros, long readMicros) {
    written.incrementAndGet();
    long now = nowMicros();
    if (appendedMicros > 0) {
      latency.add(now - appendedMicros);
    }
    if (readMicros > 0) {
      processing.add(now - readMicros);
    }
  }

  /** Returns the position up to which a partition of an input was read. */
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

  /** Counts an event that arrived after its window was closed. It also counts as quarantined or dropped. */
  void late() {
    late.incrementAndGet();
  }

  /** Counts an event that a filter removed, or for which an operator has no result. */
  void filtered() {
    filtered.incrementAndGet();
  }

  /** Counts events that the state no longer needs: they are in results, or can't be in any more. */
  void used(long count) {
    used.addAndGet(count);
  }

  /** Counts results of operators with state. */
  void results(long count) {
    results.addAndGet(count);
  }

  /** Sets the number of events in a state partition. */
  void held(String partition, long count) {
    held.put(partition, count);
  }

  /** Sets the watermark of a state partition. Not called before every source has sent an event. */
  void watermark(String partition, long micros) {
    if (micros != Long.MIN_VALUE) {
      watermarks.put(partition, micros);
    }
  }

  /** Sets the number of events in a state partition when its service starts; null: unknown. */
  void restore(String partition, Long count) {
    if (held.putIfAbsent(partition, count == null ? 0 : count) == null) {
      isHeldKnown &= count != null;
      restored.addAndGet(count == null ? 0 : count);
    }
  }

  /**
   * Resets all counts when a service with state starts, because it reads the input since its last checkpoint again.
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

  /** Returns JSON: counts and latency histogram since the start, and latency quantiles since the last call, in ms. */
  public static String snapshot(String service) {
    Metrics of = of(service);
    return String.format(
        "{\"read\":%d,\"bytes\":%d,\"missed_bytes\":%d,\"written\":%d,\"quarantined\":%d,\"flagged\":%d,"
            + "\"dropped\":%d,\"skipped\":%d,\"late\":%d,\"filtered\":%d,\"used\":%d,\"results\":%d,"
            + "\"restored\":%s,\"held\":%s,\"watermarks\":%s,\"reached\":%s,%s,%s}",
        of.records.get(), of.bytes.get(), of.missed.get(), of.written.get(), of.quarantined.get(), of.flagged.get(),
        of.dropped.get(), of.skipped.get(), of.late.get(), of.filtered.get(), of.used.get(),
        of.results.get(), of.isHeldKnown ? of.restored.get() : "null", of.isHeldKnown ? sum(of.held) : "null",
        new LogOffset(of.watermarks).json(), new LogOffset(of.positions()).json(),
        of.latency.json("latency"), of.processing.json("processing"));
  }

  private static long sum(Map<String, Long> counts) {
    return counts.values().stream().mapToLong(Long::longValue).sum();
  }

  private Map<String, Long> positions() {
    Map<String, Long> found = new HashMap<>();
    reached.forEach((source, position) -> found.put(source, position.get()));
    return found;
  }

  /** Deletes the metrics of a removed service. */
  public static void forget(String service) {
    ALL.remove(service);
    SourceClock.forget(service);
  }
}
