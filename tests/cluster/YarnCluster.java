import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * Runs a YARN cluster of some node managers in this process, until its standard
 * input closes. Writes the settings of its clients into a folder: YarnCluster FOLDER NODES.
 */
class YarnCluster {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        YarnConfiguration settings = new YarnConfiguration();
        settings.set("fs.defaultFS", "file:///");
        settings.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 64);
        settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        settings.setInt("yarn.nodemanager.resource.memory-mb", 4096);
        settings.setInt("yarn.nodemanager.resource.cpu-vcores", 32);
        settings.setInt(YarnConfiguration.RM_SCHEDULER_MAXIMUM_ALLOCATION_VCORES, 32);
        settings.setFloat("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", 99.9f);
        settings.set("yarn.scheduler.capacity.root.queues", "default");
        settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
        settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1.0");
        MiniYARNCluster cluster = new MiniYARNCluster("tidegate", Integer.parseInt(arguments[1]), 1, 1);
        cluster.init(settings);
        cluster.start();
        try (OutputStream out = Files.newOutputStream(folder.resolve("draft.xml"))) {
            cluster.getConfig().writeXml(out);
        }
        Files.copy(folder.resolve("draft.xml"), folder.resolve("core-site.xml"));
        Files.move(folder.resolve("draft.xml"), folder.resolve("yarn-site.xml"));
        System.out.println("started");
        System.in.read();
        cluster.stop();
        System.exit(0);
    }
}
