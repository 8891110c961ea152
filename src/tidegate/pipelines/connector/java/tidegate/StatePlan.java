package tidegate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;

/**
 * The settings of one stage with state. The Python compiler writes them as JSON.
 *
 * <p>All times are microseconds. {@code shape} is one of: windows, count, join, tuple_join, latest, previous, distinct,
 * pattern.
 */
final class StatePlan implements Serializable {
  private static final long serialVersionUID = 1L;

  /** One aggregate: {@code argument} and {@code order} are indexes into the record's arguments. */
  static final class Aggregate implements Serializable {
    private static final long serialVersionUID = 1L;
    /** The name of the aggregate in stored state, so that a new version finds it. */
    final String name;
    final String function;
    final int argument;
    final int order;
    final double share;

    Aggregate(JsonNode node) {
      name = node.get("name").asText();
      function = node.get("function").asText();
      argument = node.path("argument").asInt(-1);
      order = node.path("order").asInt(-1);
      share = node.path("share").asDouble(0.5);
    }
  }

  /** One step of a pattern. Its condition is the boolean argument of the same index. */
  static final class Step implements Serializable {
    private static final long serialVersionUID = 1L;
    final int least;
    final int most;
    final long lasting;
    final boolean absent;

    Step(JsonNode node) {
      least = node.path("least").asInt(1);
      most = node.path("most").isNull() || node.path("most").isMissingNode() ? Integer.MAX_VALUE : node.get("most").asInt();
      lasting = node.path("for").asLong(-1);
      absent = node.path("absent").asBoolean(false);
    }
  }

  final String service;
  final String stage;
  final String shape;
  /** The key of this stage's ticks for each state partition. It hashes to that partition. */
  final List<String> tickKeys = new ArrayList<>();
  /** Number of state partitions of the next stage; 0: there is none. */
  final int nextPartitions;
  /** The source partitions that send ticks. The watermark waits for all of them. */
  final List<String> sources = new ArrayList<>();
  /** Whether it runs in micro-batches. */
  final boolean batches;
  final long lateness;
  /** Silence after which a source no longer holds the watermark back; -1: never. */
  final long idle;
  final String onLate;
  final boolean updates;
  /** One of: time, session, all, running (the totals so far at the end of each window). */
  final String windows;
  final long length;
  final long slide;
  final long offset;
  final String zone;
  final List<Aggregate> aggregates = new ArrayList<>();
  final int sides;
  final long within;
  final String how;
  final boolean required;
  final int back;
  /** The largest number of events that a window emits one by one; -1: it emits one result. */
  final long limit;
  final List<Step> steps = new ArrayList<>();
  /** The index of the numeric argument that {@code spanLimit} bounds; -1: none. */
  final int span;
  final double spanLimit;

  /** Returns the settings that determine timers. If they differ from those of the state, all timers are set again. */
  String timing() {
    StringBuilder text = new StringBuilder(lateness + " " + within);
    steps.forEach(step -> text.append(' ').append(step.lasting));
    return text.toString();
  }

  StatePlan(String json) {
    JsonNode node;
    try {
      node = new ObjectMapper().readTree(json);
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
    service = node.get("service").asText();
    stage = node.get("stage").asText();
    shape = node.get("shape").asText();
    node.get("tick_keys").forEach(each -> tickKeys.add(each.asText()));
    nextPartitions = node.path("next_partitions").asInt(0);
    node.get("sources").forEach(each -> sources.add(each.asText()));
    batches = node.path("batches").asBoolean(false);
    lateness = node.path("lateness").asLong(0);
    idle = node.path("idle").asLong(-1);
    onLate = node.path("on_late").asText("quarantine");
    updates = node.path("updates").asBoolean(false);
    windows = node.path("windows").asText("time");
    length = node.path("length").asLong(0);
    slide = node.path("slide").asLong(1);
    offset = node.path("offset").asLong(0);
    zone = node.path("zone").asText("");
    node.path("aggregates").forEach(each -> aggregates.add(new Aggregate(each)));
    sides = node.path("sides").asInt(1);
    within = node.path("within").asLong(-1);
    how = node.path("how").asText("inner");
    required = node.path("required").asBoolean(false);
    back = node.path("back").asInt(1);
    limit = node.path("limit").asLong(-1);
    node.path("steps").forEach(each -> steps.add(new Step(each)));
    span = node.path("span").asInt(-1);
    spanLimit = node.path("span_limit").asDouble(0);
  }
}
