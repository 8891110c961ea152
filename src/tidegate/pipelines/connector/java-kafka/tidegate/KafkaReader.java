package tidegate;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads one partition of a topic: up to an offset in a micro-batch, without end in real-time mode.
 *
 * <p>If there is a {@code group}, the reader commits its position once per second ({@link SourceNote}), and starts there:
 * Spark may run a task again from where its epoch began, an hour ago. A stateless task is one thread that passes each row
 * to the writer before it reads the next one. So once the producer of this JVM has delivered all of its records, all
 * records before the position are processed, including those without an output.
 */
final class KafkaReader implements SupportsRealTimeRead<InternalRow> {
  private static final long NOTE_EVERY = TimeUnit.SECONDS.toNanos(1);
  /**
   * Unchanged positions are committed too: other sources fill the output meanwhile, and Kafka deletes the offsets of a
   * group after days without commits.
   */
  private static final long REMIND_EVERY = TimeUnit.SECONDS.toNanos(10);
  private static final long LONGEST_WAIT_MS = 1_000;

  private final KafkaStream.PartitionRange range;
  private final PartitionConsumer consumer;
  private final UTF8String partition;
  private final GenericInternalRow row = new GenericInternalRow(6);
  private final Ticks ticks;
  private final Metrics metrics;
  private final AtomicLong reached;
  /** The same producer for all rows: only it knows whether one of its records has failed. */
  private final KafkaSender sender;
  private Collection<TopicPartition> outputs = List.of();
  private long noted = -1;
  private long noteDue = System.nanoTime() + NOTE_EVERY;
  private long remindDue = noteDue;
  private boolean isBatch;

  KafkaReader(KafkaStream.PartitionRange range) {
    this.range = range;
    this.partition = UTF8String.fromString(range.partition);
    this.ticks = new Ticks(range.ticks);
    this.row.update(0, partition);
    this.metrics = Metrics.of(range.service);
    this.reached = metrics.reached(range.stream + "/" + range.partition);
    this.sender = range.group.isEmpty() ? null : KafkaSender.of(range.settings);
    try {
      this.consumer = opened();
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
    this.reached.set(consumer.position());
  }

  private PartitionConsumer opened() throws IOException {
    if (sender == null) {
      return PartitionConsumer.of(range, range.begin);
    }
    String source = range.stream + "." + range.partition;
    OutputPlan plan = OutputPlan.of(range.settings, range.group, range.sources);
    outputs = plan.targets(range.outputs, source);
    long begin = Math.min(range.end, Math.max(range.begin, plan.noted(source)));
    PartitionConsumer found = PartitionConsumer.of(range, begin);
    if (!plan.hasNote(source)) {
      Map<TopicPartition, Long> begins = found.ends(outputs);
      begins.replaceAll((output, end) -> Math.max(0, plan.begin(output, source, end)));
      found.noteFirst(begins);
    }
    return found;
  }

  @Override
  public boolean next() throws IOException {
    if (!isBatch) {
      isBatch = true;
      metrics.batch();
    }
    while (consumer.position() < range.end) {
      if (step(LONGEST_WAIT_MS)) {
        return true;
      }
    }
    return ticks.nextOfBatch(row, consumer.position(), range.seen);
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public PartitionOffset getOffset() {
    return new OffsetStream.Reached(range.partition, consumer.position());
  }

  @Override
  public RecordStatus nextWithTimeout(Long startMillis, Long timeoutMillis) throws IOException {
    return nextWithTimeout(timeoutMillis);
  }

  @Override
  public RecordStatus nextWithTimeout(Long timeoutMillis) throws IOException {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
    while (true) {
      if (ticks.next(row, consumer.position())) {
        return RecordStatus.newStatusWithArrivalTimeMs(System.currentTimeMillis());
      }
      long left = Math.max(0, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime()));
      if (step(ticks.millisUntilDue(Math.min(left, LONGEST_WAIT_MS)))) {
        return RecordStatus.newStatusWithArrivalTimeMs(row.getLong(2) / 1_000);
      }
      if (consumer.isCaughtUp()) {
        ticks.caughtUp();
      }
      if (left == 0) {
        return RecordStatus.newStatusWithoutArrivalTime(false);
      }
    }
  }

  private boolean step(long timeoutMillis) throws IOException {
    note();
    ConsumerRecord<byte[], byte[]> record = consumer.next(range.end, timeoutMillis);
    reached.set(consumer.position());
    if (record == null) {
      return false;
    }
    boolean timed = record.timestampType() != TimestampType.NO_TIMESTAMP_TYPE;
    row.update(1, record.offset());
    long now = Metrics.nowMicros();
    ReadTime.set(isBatch ? 0 : now); // Spark may gather the rows of a batch
    row.update(2, timed ? record.timestamp() * 1_000 : now);
    row.update(3, UTF8String.fromBytes(record.value()));
    row.update(4, null);
    row.update(5, null);
    metrics.read(record.value().length, consumer.missed());
    return true;
  }

  private void note() throws IOException {
    long now = System.nanoTime();
    if (sender == null || now < noteDue) {
      return;
    }
    noteDue = now + NOTE_EVERY;
    long position = consumer.position();
    if (position != noted || now >= remindDue) {
      sender.flush();
      consumer.note(position, outputs);
      noted = position;
      remindDue = now + REMIND_EVERY;
    }
  }

  @Override
  public void close() {
    consumer.leave();
  }
}
