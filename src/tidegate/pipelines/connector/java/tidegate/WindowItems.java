package tidegate;

import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import scala.Tuple2;
import scala.collection.Iterator;

/** Values of {@code collect} and {@code distinct}: one state entry each, so that adding to a large window is cheap. */
final class WindowItems {
  private final MapState<String, String> items;

  WindowItems(StatefulProcessorHandle handle) {
    items = handle.getMapState("items", Encoders.STRING(), Encoders.STRING(), TTLConfig.NONE());
  }

  /** Adds an entry. Its name is its position in the list. Returns false if the name exists already. */
  boolean add(long start, int list, String name, String value) {
    String key = prefix(start) + (char) ('a' + list) + name;
    if (items.containsKey(key)) {
      return false;
    }
    items.updateValue(key, value);
    return true;
  }

  private static String prefix(long start) {
    return StateShape.digits(start) + "/";
  }

  /** Moves the entries of a window to another one. Equal distinct values become one. */
  void move(long from, long to) {
    if (from == to) {
      return;
    }
    for (Tuple2<String, String> entry : of(from)) {
      items.removeKey(entry._1());
      items.updateValue(prefix(to) + entry._1().substring(prefix(from).length()), entry._2());
    }
  }

  void remove(long start) {
    of(start).forEach(entry -> items.removeKey(entry._1()));
  }

  /** Returns the values of each aggregate with a list, in order; null for the others. */
  String[][] lists(long start, StatePlan plan) {
    String[][] lists = new String[plan.aggregates.size()][];
    boolean any = false;
    for (int n = 0; n < lists.length; n++) {
      any |= OpenWindow.needsList(plan, plan.aggregates.get(n));
    }
    if (!any) {
      return lists;
    }
    List<Tuple2<String, String>> entries = of(start);
    entries.sort((a, b) -> a._1().compareTo(b._1()));
    int at = prefix(start).length();
    for (int n = 0; n < lists.length; n++) {
      char list = (char) ('a' + n);
      lists[n] = entries.stream().filter(each -> each._1().charAt(at) == list).map(Tuple2::_2).toArray(String[]::new);
    }
    return lists;
  }

  /** Returns JSON texts as one JSON array. */
  static String array(String[] texts) {
    return "[" + String.join(",", texts) + "]";
  }

  static String quoted(String text) {
    return '"' + new String(JsonStringEncoder.getInstance().quoteAsString(text)) + '"';
  }

  private List<Tuple2<String, String>> of(long start) {
    String prefix = prefix(start);
    List<Tuple2<String, String>> found = new ArrayList<>();
    for (Iterator<Tuple2<String, String>> each = items.iterator(); each.hasNext(); ) {
      Tuple2<String, String> entry = each.next();
      if (entry._1().startsWith(prefix)) {
        found.add(entry);
      }
    }
    return found;
  }
}
