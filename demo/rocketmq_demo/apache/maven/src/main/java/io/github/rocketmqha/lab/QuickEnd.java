package io.github.rocketmqha.lab;

import java.util.Arrays;

/**
 * Shortens the end of RocketMQ's programs. What is shut down waits for its thread NettyEventExecutor, which looks only
 * every three seconds whether it is to end; a broker has three of them. An interrupt makes it look now, and does nothing else.
 */
final class QuickEnd {
    private static final String SLEEPER = "NettyEventExecutor";
    private static final int POLL_MS = 50;

    private QuickEnd() {
    }

    /** For whatever this thread shuts down, and for the end of the JVM. */
    static void watch() {
        Thread main = Thread.currentThread();
        Thread watcher = new Thread(() -> wake(() -> isShuttingDown(main)), "quick-end");
        watcher.setDaemon(true);
        watcher.start();
        Thread hook = new Thread(() -> wake(() -> true), "quick-end-of-all");
        hook.setDaemon(true); // so that the JVM does not wait for it
        Runtime.getRuntime().addShutdownHook(new Thread(hook::start));
    }

    private interface Condition {
        boolean holds();
    }

    private static void wake(Condition needed) {
        while (true) {
            if (needed.holds()) {
                Thread[] all = new Thread[Thread.activeCount() + 100];
                int count = Thread.enumerate(all);
                Arrays.stream(all, 0, count).filter(one -> one.getName().equals(SLEEPER)).forEach(Thread::interrupt);
            }
            try {
                Thread.sleep(POLL_MS);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }

    private static boolean isShuttingDown(Thread thread) {
        return Arrays.stream(thread.getStackTrace())
            .anyMatch(frame -> frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown"));
    }
}
