package io.github.rocketmqha.lab;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Several commands of mqadmin, each an argument, one after the other in one JVM, whose start takes longer than they do. */
public final class Tools {
    private Tools() {
    }

    public static void main(String[] commands) {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(out);
        for (String command : commands) {
            out.println("\u0001");
            System.err.println("\u0001");
            MQAdminStartup.main0(command.split(" "), null);
        }
        System.exit(0);
    }
}
