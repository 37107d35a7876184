import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import java.util.TreeSet;

/**
 * What Java makes of each line of its input, `load BASE64` or `value BASE64`: see properties_capture.py.
 */
public class GoldenProperties {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 2);
            byte[] bytes = Base64.getDecoder().decode(words.length > 1 ? words[1] : "");
            System.out.println(words[0].equals("load") ? load(bytes) : value(new String(bytes, StandardCharsets.UTF_8)));
        }
    }

    /** `ok KEY VALUE KEY VALUE`, or `refused`. */
    private static String load(byte[] bytes) throws Exception {
        Properties properties = new Properties();
        try {
            properties.load(new ByteArrayInputStream(bytes));
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        StringBuilder out = new StringBuilder("ok");
        for (String key : new TreeSet<>(properties.stringPropertyNames())) {
            out.append(' ').append(text(key)).append(' ').append(text(properties.getProperty(key)));
        }
        return out.toString();
    }

    /** The value as int, long, double and boolean, `refused` for each that it is not. */
    private static String value(String text) {
        return number(() -> Integer.parseInt(text)) + ' ' + number(() -> Long.parseLong(text)) + ' '
            + number(() -> Double.parseDouble(text)) + ' ' + Boolean.parseBoolean(text);
    }

    private static String number(java.util.function.Supplier<Number> parse) {
        try {
            return parse.get().toString();
        } catch (NumberFormatException refused) {
            return "refused";
        }
    }

    private static String text(String text) {
        return "." + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_16BE));
    }
}
