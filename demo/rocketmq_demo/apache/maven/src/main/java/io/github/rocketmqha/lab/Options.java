package io.github.rocketmqha.lab;

import java.util.HashMap;
import java.util.Map;
import java.util.Objects;

/** Command line of the programs here: {@code mode --name value --flag ...}. */
final class Options {
    final String mode;
    private final Map<String, String> values = new HashMap<>();

    Options(String[] args) {
        mode = args.length == 0 ? "" : args[0];
        for (int i = 1; i < args.length; i++) {
            boolean flag = i + 1 == args.length || args[i + 1].startsWith("--");
            values.put(args[i].substring(2), flag ? "" : args[++i]);
        }
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String text(String name) {
        return Objects.requireNonNull(values.get(name), () -> "--" + name + " is missing");
    }

    int number(String name, int otherwise) {
        return has(name) ? Integer.parseInt(text(name)) : otherwise;
    }
}
