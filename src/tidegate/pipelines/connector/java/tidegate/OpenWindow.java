package tidegate;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;

/**
 * The aggregates of one window of one key.
 *
 * <p>They are stored by name. A new version of a service finds those that it still has. The others begin with the next
 * record.
 */
final class OpenWindow {
  private static final byte VERSION = 1;

  private final StatePlan plan;
  private final AggregateState[] states;
  long end;
  long count;
  /** Records that are in no result yet, counted in the window that closes last. */
  long held;
  long first = Long.MAX_VALUE;
  long last = Long.MIN_VALUE;
  long arrived;
  boolean closed;

  OpenWindow(StatePlan plan, long end) {
    this.plan = plan;
    this.end = end;
    states = new AggregateState[plan.aggregates.size()];
    for (int n = 0; n < states.length; n++) {
      states[n] = AggregateState.of(plan.aggregates.get(n));
    }
  }

  /** True if the values of an aggregate are in {@link WindowItems}, and are read for the result of the window. */
  static boolean needsList(StatePlan plan, StatePlan.Aggregate aggregate) {
    boolean isMerged = plan.windows.equals("session") || plan.windows.equals("running");
    return aggregate.function.equals("collect") || aggregate.function.equals("distinct") && isMerged;
  }

  void add(StateRecord record, WindowItems items, long start) {
    count++;
    first = Math.min(first, record.time);
    last = Math.max(last, record.time);
    arrived = Math.max(arrived, record.arrived);
    for (int n = 0; n < states.length; n++) {
      StatePlan.Aggregate aggregate = plan.aggregates.get(n);
      Object value = aggregate.argument < 0 ? record : record.argument(aggregate.argument);
      if (value == null) {
        continue;
      }
      if (aggregate.function.equals("collect")) {
        items.add(start, n, StateShape.digits(record.time) + record.tie, value.toString());
      } else if (aggregate.function.equals("distinct")) {
        if (items.add(start, n, value.toString(), "")) {
          states[n].add(value, null, null);
        }
      } else {
        Object order = aggregate.order < 0 ? null : record.argument(aggregate.order);
        boolean isByValue = aggregate.function.equals("min") || aggregate.function.equals("max");
        states[n].add(value, order, isByValue ? record.id : record.tie);
      }
    }
  }

  void merge(OpenWindow other) {
    count += other.count;
    held += other.held;
    end = Math.max(end, other.end);
    first = Math.min(first, other.first);
    last = Math.max(last, other.last);
    arrived = Math.max(arrived, other.arrived);
    for (int n = 0; n < states.length; n++) {
      states[n].merge(other.states[n]);
    }
  }

  /** Returns the results as texts, in the order of the plan; null for those without a value. */
  String[] values(String[][] lists) {
    String[] values = new String[states.length];
    for (int n = 0; n < states.length; n++) {
      String function = plan.aggregates.get(n).function;
      if (function.equals("collect")) {
        values[n] = WindowItems.array(lists[n]);
      } else if (lists[n] != null && needsList(plan, plan.aggregates.get(n))) {
        values[n] = Integer.toString(lists[n].length);
      } else {
        values[n] = states[n].result();
      }
    }
    return values;
  }

  byte[] save() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(64 + 32 * states.length);
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      out.writeByte(VERSION);
      out.writeBoolean(closed);
      for (long each : new long[] {end, count, held, first, last, arrived}) {
        out.writeLong(each);
      }
      out.writeShort(states.length);
      for (int n = 0; n < states.length; n++) {
        out.writeUTF(plan.aggregates.get(n).name);
        ByteArrayOutputStream own = new ByteArrayOutputStream(16);
        states[n].write(new DataOutputStream(own));
        out.writeInt(own.size());
        own.writeTo(out);
      }
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
    return bytes.toByteArray();
  }

  static OpenWindow read(StatePlan plan, byte[] saved) {
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(saved))) {
      if (in.readByte() != VERSION) {
        throw new IOException("the state of a window was written by a newer version of Tidegate");
      }
      boolean closed = in.readBoolean();
      OpenWindow window = new OpenWindow(plan, in.readLong());
      window.closed = closed;
      window.count = in.readLong();
      window.held = in.readLong();
      window.first = in.readLong();
      window.last = in.readLong();
      window.arrived = in.readLong();
      Map<String, byte[]> parts = new HashMap<>();
      for (int n = in.readShort(); n > 0; n--) {
        String name = in.readUTF();
        parts.put(name, in.readNBytes(in.readInt()));
      }
      for (int n = 0; n < window.states.length; n++) {
        byte[] part = parts.get(plan.aggregates.get(n).name);
        if (part != null) {
          window.states[n].read(new DataInputStream(new ByteArrayInputStream(part)));
        }
      }
      return window;
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }
}
