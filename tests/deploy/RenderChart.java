import com.marcnuri.helm.Helm;
import java.nio.file.Files;
import java.nio.file.Path;

/** Lints a chart, and renders it once for each file of values: RenderChart CHART OUT VALUES... */
class RenderChart {
    public static void main(String[] arguments) throws Exception {
        Path chart = Path.of(arguments[0]), out = Path.of(arguments[1]);
        var lint = new Helm(chart).lint().strict().call();
        Files.writeString(out.resolve("lint.txt"), lint.isFailed() + "\n" + String.join("\n", lint.getMessages()));
        for (int n = 2; n < arguments.length; n++) {
            Path values = Path.of(arguments[n]);
            String name = values.getFileName().toString();
            try {
                String text = new Helm(chart).template().withName("city").withNamespace("sensors")
                    .withKubeVersion("1.33.0").withValuesFile(values).call();
                Files.writeString(out.resolve(name), text);
            } catch (IllegalStateException problem) {
                Files.writeString(out.resolve(name + ".error"), String.valueOf(problem.getMessage()));
            }
        }
    }
}
