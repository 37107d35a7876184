import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.TreeMap;
import java.util.Map;

/**
 * The keys that MixAll.properties2Object sets in each class named, `key CLASS KEY TYPE DEFAULT`: see keys_capture.py.
 */
public class GoldenKeys {
    public static void main(String[] classes) throws Exception {
        for (String name : classes) {
            Object config = Class.forName(name).getDeclaredConstructor().newInstance();
            Map<String, String> keys = new TreeMap<>();
            for (Method method : config.getClass().getMethods()) {
                if (method.getName().startsWith("set") && method.getParameterCount() > 0) {
                    String key = method.getName().substring(3, 4).toLowerCase() + method.getName().substring(4);
                    String type = method.getParameterTypes()[0].getSimpleName();
                    if (type.equals("String") || !keys.containsKey(key)) { // of overloads
                        keys.put(key, type + "\t" + byDefault(config, method.getName().substring(3), key));
                    }
                }
            }
            for (Map.Entry<String, String> key : keys.entrySet()) {
                System.out.println("key\t" + config.getClass().getSimpleName() + "\t" + key.getKey() + "\t" + key.getValue());
            }
        }
    }

    /** What the getter gives without the key. */
    private static Object byDefault(Object config, String suffix, String key) throws Exception {
        for (String prefix : new String[] {"get", "is"}) {
            try {
                return config.getClass().getMethod(prefix + suffix).invoke(config);
            } catch (NoSuchMethodException next) {
                continue;
            }
        }
        for (Class<?> type = config.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(key)) {
                    field.setAccessible(true);
                    return field.get(config);
                }
            }
        }
        return "?";
    }
}
