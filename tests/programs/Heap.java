/** Fills a heap with N arrays of 200 bytes, and goes over them three times: the digest must not depend on memory. */
public class Heap {
    public static void main(String[] arguments) {
        byte[][] all = new byte[Integer.parseInt(arguments[0])][];
        for (int i = 0; i < all.length; i++) {
            all[i] = new byte[200];
            all[i][i % 200] = (byte) i;
        }
        long sum = 0;
        for (int round = 1; round <= 3; round++) {
            for (byte[] one : all) {
                for (byte b : one) {
                    sum = sum * 31 + b * round;
                }
            }
        }
        System.out.println(sum);
    }
}
