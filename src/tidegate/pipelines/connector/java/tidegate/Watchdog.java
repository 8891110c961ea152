package tidegate;

import java.util.concurrent.TimeUnit;

/**
 * Ends this JVM when the process that started it no longer says that it lives.
 *
 * <p>A paused process loses its lease, and another one runs the services then. Its JVM, which is not paused, would write
 * the same outputs. Executors of a cluster end when their driver's JVM does.
 */
public final class Watchdog {
  private static final int EXIT_STATUS = 75;
  private static volatile long deadline;
  private static Thread thread;

  private Watchdog() {}

  /** Lets this JVM live for so many milliseconds more. The first call starts the watch. */
  public static synchronized void keepAlive(long millis) {
    deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    if (thread == null) {
      thread = new Thread(Watchdog::watch, "watchdog");
      thread.setDaemon(true);
      thread.start();
    }
  }

  /** Ends the watch. */
  public static synchronized void stop() {
    if (thread != null) {
      thread.interrupt();
      thread = null;
    }
  }

  private static void watch() {
    try {
      while (true) {
        long left = deadline - System.nanoTime();
        if (left <= 0) {
          System.err.println("tidegate: the process of this JVM does not answer; another one may run the services");
          Runtime.getRuntime().halt(EXIT_STATUS);
        }
        Thread.sleep(Math.max(1, TimeUnit.NANOSECONDS.toMillis(left) + 1));
      }
    } catch (InterruptedException stopped) {
      // nobody waits for it
    }
  }
}
