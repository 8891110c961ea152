package tidegate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import scala.Tuple2;
import scala.collection.Iterator;

/** The stored events of a key, in order of time or of arrival. */
final class EventList {
  /** A stored event: {@code mark} belongs to the shape, {@code event} is the JSON of the record. */
  static final class Held {
    final String name;
    final int side;
    final long time;
    final String mark;
    final String event;

    Held(String name, String value) {
      this.name = name;
      side = name.charAt(0) - 'a';
      time = StateShape.number(name.substring(1, 21));
      int at = value.indexOf(' ');
      mark = value.substring(0, at);
      event = value.substring(at + 1);
    }
  }

  private final MapState<String, String> events;

  EventList(StatefulProcessorHandle handle) {
    events = handle.getMapState("events", Encoders.STRING(), Encoders.STRING(), TTLConfig.NONE());
  }

  /**
   * Adds an event. {@code place} is its order within its side: its time, or its number. The tie orders equal places.
   */
  void add(int side, long place, String tie, String mark, String event) {
    events.updateValue((char) ('a' + side) + StateShape.digits(place) + tie, mark + " " + event);
  }

  void mark(Held held, String mark) {
    events.updateValue(held.name, mark + " " + held.event);
  }

  void remove(Held held) {
    events.removeKey(held.name);
  }

  /** Returns all events of the key, by side, then in order. */
  List<Held> all() {
    List<Held> found = new ArrayList<>();
    for (Iterator<Tuple2<String, String>> each = events.iterator(); each.hasNext(); ) {
      Tuple2<String, String> entry = each.next();
      found.add(new Held(entry._1(), entry._2()));
    }
    found.sort((a, b) -> a.name.compareTo(b.name));
    return found;
  }
}
