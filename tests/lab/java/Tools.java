package io.github.rocketmqha.lab;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Commands of mqadmin in one JVM, whose start takes longer than they do: a line of standard input each, the arguments
 * separated by {@code \u0001}. Answers each with a line: {@code \u0001}, and in Base64 what it wrote to standard output
 * and to standard error.
 */
public final class Tools {
    private Tools() {
    }

    public static void main(String[] none) throws IOException {
        QuickEnd.watch();
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null;) {
            System.clearProperty(MixAll.NAMESRV_ADDR_PROPERTY); // where a command before it left its -n
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream error = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(error, true, StandardCharsets.UTF_8));
            MQAdminStartup.main0(line.split("\u0001"), null);
            answers.println("\u0001 " + text(out) + " " + text(error));
            answers.flush();
        }
        System.exit(0); // the library leaves threads behind that are no daemons
    }

    private static String text(ByteArrayOutputStream written) {
        return Base64.getEncoder().encodeToString(written.toByteArray());
    }
}
