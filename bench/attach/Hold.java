import java.nio.channels.Pipe;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;

/** As hold.py, with the collector at work: Hold MIB. */
public class Hold {
    static byte[] content(int number, int version) {
        byte[] bytes = new byte[1000];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (number * 31 + version * 7 + i / 50);
        }
        return bytes;
    }

    static void start(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    static void fail(String why) {
        System.out.println("wrong " + why);
        System.out.flush();
        Runtime.getRuntime().halt(1);
    }

    static void select(Pipe.SourceChannel source) {
        try {
            Selector selector = Selector.open();
            source.configureBlocking(false);
            source.register(selector, SelectionKey.OP_READ);
            while (true) {
                selector.select();
                selector.selectedKeys().clear();
                source.read(ByteBuffer.allocate(64));
            }
        } catch (Exception error) {
            fail(error.toString());
        }
    }

    static void park(CountDownLatch never) {
        try {
            never.await();
        } catch (InterruptedException error) {
            fail(error.toString());
        }
    }

    static void sleep(int millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException error) {
            fail(error.toString());
        }
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]) * 1000;
        byte[][] blocks = new byte[count][];
        int[] versions = new int[count];
        for (int i = 0; i < count; i++) {
            blocks[i] = content(i, 0);
        }
        Pipe pipe = Pipe.open();
        CountDownLatch never = new CountDownLatch(1);
        start(() -> select(pipe.source()));
        start(() -> park(never));
        start(() -> {
            while (true) {
                sleep(700);
            }
        });
        System.out.println("ready");
        int part = count / 10;
        for (long done = 0, at = 0;; done++, at = (at + part) % count) {
            for (long n = at; n < at + part; n++) {
                int number = (int) (n % count);
                if (!Arrays.equals(blocks[number], content(number, versions[number]))) {
                    fail(Integer.toString(number));
                }
                if (number % 3 == 0) {
                    blocks[number] = content(number, ++versions[number]);
                }
            }
            pipe.sink().write(ByteBuffer.wrap(new byte[] {1}));
            System.out.println(done);
            sleep(50);
        }
    }
}
