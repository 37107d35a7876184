package io.github.rocketmqha.lab;

import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;

/**
 * Runs the main class named by its first argument, and takes the JVM down when standard input ends: the process
 * that started us holds the other end, so that not even a killed test leaves servers behind.
 */
public final class Tether {
    private Tether() {
    }

    public static void main(String[] args) throws Exception {
        Thread thread = new Thread(() -> {
            try {
                System.in.transferTo(OutputStream.nullOutputStream());
            } catch (IOException closed) {
                // as good as the end
            }
            Runtime.getRuntime().halt(129); // no shutdown hooks: they could wait for others that are gone, too
        }, "tether");
        thread.setDaemon(true);
        thread.start();
        QuickEnd.watch();
        String[] rest = Arrays.copyOfRange(args, 1, args.length);
        Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }
}
