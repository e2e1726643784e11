import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;

/**
 * A JVM program around one large HashMap: fills it, replaces and removes entries, then looks up
 * every key again and prints a digest of all values.
 *
 * <pre>java Index.java ENTRIES       (about 0.3 KB of heap per entry)</pre>
 */
public class Index {
    private final Map<String, long[]> entries = new HashMap<>();
    private final Random random = new Random(7);

    private static String key(int i) {
        return "key/" + i + "/" + Integer.toHexString(i * 0x9e3779b9);
    }

    private long[] value() {
        long[] value = new long[20];
        for (int k = 0; k < value.length; k++) {
            value[k] = k % 3 == 0 ? random.nextLong() : random.nextInt(1000);
        }
        return value;
    }

    private void fill(int count) {
        for (int i = 0; i < count; i++) {
            entries.put(key(i), value());
        }
    }

    private void change(int count) {
        for (int n = 0; n < count; n++) {
            String key = key(random.nextInt(count));
            if (n % 8 == 0) {
                entries.remove(key);
            } else {
                entries.put(key, value());
            }
        }
    }

    private String digest(int count) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (int i = 0; i < count; i++) {
            long[] value = entries.get(key(i));
            long sum = i;
            for (int k = 0; value != null && k < value.length; k++) {
                sum = sum * 31 + value[k];
            }
            digest.update(Long.toString(sum).getBytes(StandardCharsets.US_ASCII));
        }
        return HexFormat.of().formatHex(digest.digest());
    }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[0]);
        Index index = new Index();
        index.fill(count);
        index.change(count);
        System.out.println(index.entries.size() + " entries, " + index.digest(count));
    }
}
