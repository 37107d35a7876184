package io.github.rocketmqha.lab;

import java.util.Arrays;
import java.util.function.BooleanSupplier;

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
        daemon(main::isAlive, () -> isShuttingDown(main)).start();
        Thread atTheEnd = daemon(() -> true, () -> true); // a hook itself would have to end
        Runtime.getRuntime().addShutdownHook(new Thread(atTheEnd::start));
    }

    private static Thread daemon(BooleanSupplier goesOn, BooleanSupplier needed) {
        Thread thread = new Thread(() -> {
            while (goesOn.getAsBoolean()) {
                if (needed.getAsBoolean()) {
                    wake();
                }
                try {
                    Thread.sleep(POLL_MS);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        }, "quick-end");
        thread.setDaemon(true);
        return thread;
    }

    private static void wake() {
        Thread[] all = new Thread[Thread.activeCount() + 100];
        int count = Thread.enumerate(all);
        Arrays.stream(all, 0, count).filter(one -> one.getName().equals(SLEEPER)).forEach(Thread::interrupt);
    }

    private static boolean isShuttingDown(Thread thread) {
        return Arrays.stream(thread.getStackTrace())
            .anyMatch(frame -> frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown"));
    }
}
