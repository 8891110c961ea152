package tidegate;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** A row that enters a stage with state: a record, a tick, or a refused record that only passes through. */
final class StateRecord {
  /** {@code kind} of a row. */
  static final int RESULT = 0;

  static final int PASSED = 1;
  static final int TICK = 2;
  static final int LATE = 3;

  /**
   * The columns of a stage's output. A result has {@code events}, a list of JSON texts, or {@code values}, the
   * aggregates as texts. A refused or late record has its id in {@code k}, its source and position in {@code clock},
   * its time in {@code start}, and the {@code reason} why it is refused.
   */
  static final StructType OUTPUT =
      new StructType()
          .add("kind", DataTypes.IntegerType)
          .add("tick", DataTypes.IntegerType)
          .add("source", DataTypes.StringType)
          .add("clock", DataTypes.StringType)
          .add("k", DataTypes.StringType)
          .add("start", DataTypes.LongType)
          .add("end", DataTypes.LongType)
          .add("revision", DataTypes.LongType)
          .add("arrived", DataTypes.LongType)
          .add("event", DataTypes.StringType)
          .add("events", DataTypes.createArrayType(DataTypes.StringType))
          .add("values", DataTypes.createArrayType(DataTypes.StringType))
          .add("reason", DataTypes.StringType);

  final String key;
  final int kind;
  final String source;
  final String clock;
  final int side;
  /** Event time. */
  final long time;
  final long arrived;
  /** The source and position of the record; orders records of the same time. */
  final String tie;
  final String id;
  final String event;
  /** When the record or tick was read. */
  final long read;
  private final Row arguments;

  StateRecord(Row row) {
    key = row.getString(0);
    kind = row.getInt(1);
    source = row.getString(2);
    clock = row.getString(3);
    side = row.getInt(4);
    time = row.isNullAt(5) ? Long.MIN_VALUE : row.getLong(5);
    arrived = row.isNullAt(6) ? 0 : row.getLong(6);
    tie = row.getString(7);
    event = row.getString(8);
    id = row.getString(9);
    arguments = row.isNullAt(10) ? null : row.getStruct(10);
    read = row.isNullAt(11) ? 0 : row.getLong(11);
  }

  /** Returns an argument of an aggregate or a condition; null if the record has no value for it. */
  Object argument(int n) {
    return arguments == null ? null : arguments.get(n);
  }
}
