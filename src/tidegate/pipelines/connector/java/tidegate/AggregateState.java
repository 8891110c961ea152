package tidegate;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.hll.Union;
import org.apache.datasketches.kll.KllDoublesSketch;
import org.apache.datasketches.memory.Memory;
import org.apache.datasketches.quantilescommon.QuantileSearchCriteria;

/** The running value of one aggregate. */
abstract class AggregateState {
  static AggregateState of(StatePlan.Aggregate aggregate) {
    switch (aggregate.function) {
      case "count":
      case "distinct":
      case "collect":
        return new Count();
      case "sum":
        return new Sum(false);
      case "avg":
        return new Sum(true);
      case "stddev":
        return new Deviation();
      case "min":
      case "first":
        return new Extreme(-1);
      case "max":
      case "last":
        return new Extreme(1);
      case "percentile":
        return new Percentile(aggregate.share);
      case "approx_distinct":
        return new ApproximateCount();
      default:
        throw new IllegalArgumentException("unknown aggregate " + aggregate.function);
    }
  }

  /** Adds a value that is not null. {@code order} and {@code tie} order it among the others. */
  abstract void add(Object value, Object order, String tie);

  abstract void merge(AggregateState other);

  /** Returns the result as text, which Spark casts to the attribute's type; null if there is none. */
  abstract String result();

  abstract void write(DataOutputStream out) throws IOException;

  abstract void read(DataInputStream in) throws IOException;

  private static final class Count extends AggregateState {
    private long count;

    @Override
    void add(Object value, Object order, String tie) {
      count++;
    }

    @Override
    void merge(AggregateState other) {
      count += ((Count) other).count;
    }

    @Override
    String result() {
      return Long.toString(count);
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.writeLong(count);
    }

    @Override
    void read(DataInputStream in) throws IOException {
      count = in.readLong();
    }
  }

  /** A sum. Integers are exact, also beyond 64 bits; other numbers are doubles. */
  private static final class Sum extends AggregateState {
    private final boolean isMean;
    private long count;
    private boolean isWhole;
    private BigInteger whole = BigInteger.ZERO;
    private long small;
    private double real;

    Sum(boolean isMean) {
      this.isMean = isMean;
    }

    @Override
    void add(Object value, Object order, String tie) {
      count++;
      if (value instanceof Double) {
        real += (Double) value;
        return;
      }
      isWhole = true;
      if (value instanceof BigDecimal) {
        whole = whole.add(((BigDecimal) value).toBigInteger());
      } else {
        add((Long) value);
      }
    }

    private void add(long value) {
      long sum = small + value;
      if (((small ^ sum) & (value ^ sum)) < 0) {
        whole = whole.add(BigInteger.valueOf(small));
        sum = value;
      }
      small = sum;
    }

    @Override
    void merge(AggregateState other) {
      Sum sum = (Sum) other;
      count += sum.count;
      isWhole |= sum.isWhole;
      real += sum.real;
      whole = whole.add(sum.whole);
      add(sum.small);
    }

    @Override
    String result() {
      if (count == 0) {
        return null;
      }
      BigInteger total = whole.add(BigInteger.valueOf(small));
      if (isMean) {
        return Double.toString((isWhole ? total.doubleValue() : real) / count);
      }
      return isWhole ? total.toString() : Double.toString(real);
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.writeLong(count);
      out.writeBoolean(isWhole);
      out.writeLong(small);
      out.writeDouble(real);
      byte[] bytes = whole.signum() == 0 ? new byte[0] : whole.toByteArray();
      out.writeShort(bytes.length);
      out.write(bytes);
    }

    @Override
    void read(DataInputStream in) throws IOException {
      count = in.readLong();
      isWhole = in.readBoolean();
      small = in.readLong();
      real = in.readDouble();
      byte[] bytes = in.readNBytes(in.readShort());
      whole = bytes.length == 0 ? BigInteger.ZERO : new BigInteger(bytes);
    }
  }

  /** The sample standard deviation, by Welford's method. */
  private static final class Deviation extends AggregateState {
    private long count;
    private double mean;
    private double squares;

    @Override
    void add(Object value, Object order, String tie) {
      double number = ((Number) value).doubleValue();
      double delta = number - mean;
      mean += delta / ++count;
      squares += delta * (number - mean);
    }

    @Override
    void merge(AggregateState other) {
      Deviation with = (Deviation) other;
      long total = count + with.count;
      if (total > 0) {
        double delta = with.mean - mean;
        squares += with.squares + delta * delta * count * with.count / total;
        mean += delta * with.count / total;
        count = total;
      }
    }

    @Override
    String result() {
      return count < 2 ? null : Double.toString(Math.sqrt(squares / (count - 1)));
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.writeLong(count);
      out.writeDouble(mean);
      out.writeDouble(squares);
    }

    @Override
    void read(DataInputStream in) throws IOException {
      count = in.readLong();
      mean = in.readDouble();
      squares = in.readDouble();
    }
  }

  /** The value with the smallest or greatest order; among equal orders that with the smallest or greatest tie. */
  private static final class Extreme extends AggregateState {
    private final int sign;
    private String value;
    private Object order;
    private String tie;

    Extreme(int sign) {
      this.sign = sign;
    }

    @Override
    void add(Object carried, Object by, String among) {
      if (by != null && (value == null || sign * compare(by, among) > 0)) {
        value = carried.toString();
        order = by;
        tie = among;
      }
    }

    private int compare(Object by, String among) {
      int ordered = by instanceof String ? byCodePoints((String) by, (String) order) : natural(by, order);
      return ordered != 0 ? ordered : byCodePoints(among, tie);
    }

    @SuppressWarnings("unchecked")
    private static int natural(Object a, Object b) {
      return ((Comparable<Object>) a).compareTo(b);
    }

    /** Compares texts as Spark does: by UTF-8 bytes, which is the order of code points. */
    private static int byCodePoints(String a, String b) {
      for (int i = 0, j = 0; i < a.length() && j < b.length(); ) {
        int x = a.codePointAt(i);
        int y = b.codePointAt(j);
        if (x != y) {
          return Integer.compare(x, y);
        }
        i += Character.charCount(x);
        j += Character.charCount(y);
      }
      return Integer.compare(a.length(), b.length());
    }

    @Override
    void merge(AggregateState other) {
      Extreme with = (Extreme) other;
      if (with.value != null) {
        add(with.value, with.order, with.tie);
      }
    }

    @Override
    String result() {
      return value;
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.writeByte(value == null ? 0 : order instanceof Long ? 1 : order instanceof Double ? 2 : order instanceof String ? 3 : 4);
      if (value == null) {
        return;
      }
      text(out, value);
      text(out, tie);
      if (order instanceof Double) {
        out.writeDouble((Double) order);
      } else {
        text(out, order.toString());
      }
    }

    @Override
    void read(DataInputStream in) throws IOException {
      int kind = in.readByte();
      if (kind == 0) {
        return;
      }
      value = text(in);
      tie = text(in);
      if (kind == 2) {
        order = in.readDouble();
        return;
      }
      String text = text(in);
      order = kind == 1 ? (Object) Long.valueOf(text) : kind == 3 ? text : new BigDecimal(text);
    }
  }

  static void text(DataOutputStream out, String text) throws IOException {
    byte[] bytes = text.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  static String text(DataInputStream in) throws IOException {
    return new String(in.readNBytes(in.readInt()), java.nio.charset.StandardCharsets.UTF_8);
  }

  /** A quantile from a KLL sketch: exact for few values, within 1.4 % of the rank for many. */
  private static final class Percentile extends AggregateState {
    private final double share;
    private KllDoublesSketch sketch = KllDoublesSketch.newHeapInstance();

    Percentile(double share) {
      this.share = share;
    }

    @Override
    void add(Object value, Object order, String tie) {
      double number = ((Number) value).doubleValue();
      if (!Double.isNaN(number)) {
        sketch.update(number);
      }
    }

    @Override
    void merge(AggregateState other) {
      sketch.merge(((Percentile) other).sketch);
    }

    @Override
    String result() {
      return sketch.isEmpty() ? null : Double.toString(sketch.getQuantile(share, QuantileSearchCriteria.INCLUSIVE));
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.write(sketch.toByteArray());
    }

    @Override
    void read(DataInputStream in) throws IOException {
      sketch = KllDoublesSketch.heapify(Memory.wrap(in.readAllBytes()));
    }
  }

  /** The number of distinct values from a HyperLogLog sketch with 4,096 registers: nearly always within 4 %. */
  private static final class ApproximateCount extends AggregateState {
    private static final int LOG_REGISTERS = 12;
    private HllSketch sketch = new HllSketch(LOG_REGISTERS);

    @Override
    void add(Object value, Object order, String tie) {
      sketch.update(value.toString());
    }

    @Override
    void merge(AggregateState other) {
      Union union = new Union(LOG_REGISTERS);
      union.update(sketch);
      union.update(((ApproximateCount) other).sketch);
      sketch = union.getResult();
    }

    @Override
    String result() {
      return Long.toString(Math.round(sketch.getEstimate()));
    }

    @Override
    void write(DataOutputStream out) throws IOException {
      out.write(sketch.toCompactByteArray());
    }

    @Override
    void read(DataInputStream in) throws IOException {
      sketch = HllSketch.heapify(Memory.wrap(in.readAllBytes()));
    }
  }
}
