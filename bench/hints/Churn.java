import java.util.HashMap;

/** Keeps LIVE MiB of records in a map, and replaces records at random, ROUNDS times as many as there are. */
public class Churn {
    static int state = 12345;

    static int random(int below) {
        state = state * 1664525 + 1013904223;
        return (int) ((Integer.toUnsignedLong(state) * below) >>> 32);
    }

    static class Record {
        final int[] values = new int[24];
        final String name;

        Record(int id) {
            name = "record " + id + " of kind " + random(100);
            for (int i = 0; i < values.length; i++) {
                values[i] = random(1000000);
            }
        }
    }

    public static void main(String[] arguments) {
        int count = (Integer.parseInt(arguments[0]) << 20) / 260;
        int rounds = Integer.parseInt(arguments[1]);
        HashMap<Integer, Record> all = new HashMap<>();
        for (int id = 0; id < count; id++) {
            all.put(id, new Record(id));
        }
        for (long n = 0; n < (long) rounds * count; n++) {
            int id = random(count);
            Record one = new Record(id);
            one.values[0] = all.get(id).values[23];
            all.put(id, one);
        }
        long sum = 0;
        for (int id = 0; id < count; id++) {
            sum = sum * 31 + all.get(id).values[0] + all.get(id).name.length();
        }
        System.out.println(count + " records " + sum);
    }
}
