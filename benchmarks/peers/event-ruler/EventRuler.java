import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import software.amazon.event.ruler.Machine;

/**
 * Times event-ruler on rules and events from NDJSON files; prints one line of JSON.
 *
 * <p>Arguments: rules, events, seconds of warm-up, seconds to measure. Rules and events
 * are read before any clock runs. Every event is parsed from its text, as the library's
 * users have it. One thread matches; its CPU time is taken beside the wall's.
 */
public final class EventRuler {
    public static void main(String[] args) throws Exception {
        List<String> rules = Files.readAllLines(Path.of(args[0]));
        List<String> events = Files.readAllLines(Path.of(args[1]));
        double warmUp = Double.parseDouble(args[2]);
        double measure = Double.parseDouble(args[3]);

        long begin = System.nanoTime();
        Machine machine = new Machine();
        for (int n = 0; n < rules.size(); n++) {
            machine.addRule(Integer.toString(n), rules.get(n));
        }
        double build = since(begin);

        begin = System.nanoTime();
        long matches = matches(machine, events);
        while (since(begin) < warmUp) {
            matches(machine, events);
        }

        var threads = java.lang.management.ManagementFactory.getThreadMXBean();
        long cpu = threads.getCurrentThreadCpuTime();
        begin = System.nanoTime();
        long matched = 0;
        do {
            matches(machine, events);
            matched += events.size();
        } while (since(begin) < measure);
        double wall = since(begin);
        double busy = (threads.getCurrentThreadCpuTime() - cpu) / 1e9;
        System.out.printf(
                java.util.Locale.ROOT,
                "{\"events_per_s\": %.3f, \"events_per_cpu_s\": %.3f, \"matches\": %d, \"build_s\": %.3f,"
                        + " \"java\": \"%s\"}%n",
                matched / wall, matched / busy, matches, build, System.getProperty("java.version"));
    }

    private static long matches(Machine machine, List<String> events) throws Exception {
        long found = 0;
        for (String event : events) {
            found += machine.rulesForJSONEvent(event).size();
        }
        return found;
    }

    private static double since(long begin) {
        return (System.nanoTime() - begin) / 1e9;
    }
}
