package io.github.rocketmqha.lab;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Keeps book of what a cluster promised to an official client, and audits the promise afterwards.
 *
 * <p>{@code send} gives every attempt a number of its own, so that an attempt whose outcome is unknown (a timeout while
 * the master dies) is never mixed up with an acknowledged one. {@code read} fetches every queue from its first to its
 * last offset and says which acknowledged numbers are gone.
 */
public final class Ledger {
    private static final int FETCH = 32;
    private static final int LISTED = 1000;

    private Ledger() {
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        if (options.mode.equals("send")) {
            send(options);
        } else if (options.mode.equals("read")) {
            read(options);
        } else {
            throw new IllegalArgumentException("the mode is send or read, not " + options.mode);
        }
        System.exit(0); // the client library leaves threads behind that are no daemons
    }

    private static void send(Options options) throws Exception {
        QuickEnd.watch();
        DefaultMQProducer producer = new DefaultMQProducer("ledger-" + ProcessHandle.current().pid());
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setVipChannelEnabled(false);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setSendMsgTimeout(options.number("timeout-ms", 3000));
        producer.setRetryTimesWhenSendFailed(options.number("retries", 0));
        producer.setPollNameServerInterval(options.number("route-poll-ms", 100));
        producer.setHeartbeatBrokerInterval(1000);
        producer.start();

        String topic = options.text("topic");
        int size = options.number("size", 1024);
        int pause = options.number("pause-ms", 2);
        int pace = options.number("pace-ms", 0);
        AtomicLong next = new AtomicLong(options.number("first", 0));
        AtomicLong acknowledged = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(options.number("seconds", 10));
        Book book = new Book(Path.of(options.text("out")));
        Stop stop = new Stop(options.has("until-stdin-closes"), end);

        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < options.number("threads", 1); i++) {
            Thread thread = new Thread(() -> {
                while (!stop.now()) {
                    long number = next.getAndIncrement();
                    Message message = new Message(topic, body(number, size));
                    long start = System.nanoTime();
                    try {
                        SendResult result = producer.send(message);
                        long now = System.nanoTime();
                        book.acknowledged(number, now, start, result);
                        acknowledged.incrementAndGet();
                        sleep(pace);
                    } catch (InterruptedException stopped) {
                        return;
                    } catch (Exception failure) {
                        book.failed(number, System.nanoTime(), start, failure);
                        failed.incrementAndGet();
                        sleep(pause);
                    }
                }
            }, "ledger-" + i);
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        producer.shutdown();
        book.close();
        System.out.printf("{\"acknowledged\":%d,\"failed\":%d}%n", acknowledged.get(), failed.get());
        System.out.flush();
    }

    private static void read(Options options) throws Exception {
        String topic = options.text("topic");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(options.number("seconds", 60));
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("ledger-reader-" + ProcessHandle.current().pid());
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setVipChannelEnabled(false);
        consumer.setPollNameServerInterval(options.number("route-poll-ms", 100));
        consumer.start();

        BitSet seen = new BitSet();
        long messages = 0;
        TreeSet<Integer> duplicates = new TreeSet<>();
        List<String> queues = new ArrayList<>();
        boolean complete = true;
        for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
            long min = consumer.minOffset(queue);
            long max = consumer.maxOffset(queue);
            long offset = min;
            while (offset < max && System.nanoTime() < end) {
                PullResult result = consumer.pull(queue, "*", offset, FETCH, 3000);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        int number = number(message.getBody());
                        messages++;
                        if (seen.get(number)) {
                            duplicates.add(number);
                        }
                        seen.set(number);
                    }
                } else {
                    sleep(20); // what is beyond the confirm offset is promised to nobody yet
                }
                offset = Math.max(offset, result.getNextBeginOffset());
            }
            complete &= offset >= max;
            queues.add(String.format("{\"broker\":\"%s\",\"queue\":%d,\"min\":%d,\"max\":%d,\"read\":%d}",
                queue.getBrokerName(), queue.getQueueId(), min, max, offset));
        }
        consumer.shutdown();

        BitSet promised = new BitSet();
        if (options.has("ledger")) {
            for (String line : Files.readAllLines(Path.of(options.text("ledger")), StandardCharsets.UTF_8)) {
                promised.set(Integer.parseInt(line.substring(0, line.indexOf('\t'))));
            }
        }
        BitSet missing = (BitSet) promised.clone();
        missing.andNot(seen);
        BitSet unpromised = (BitSet) seen.clone();
        unpromised.andNot(promised);
        System.out.printf("{\"topic\":\"%s\",\"complete\":%b,\"messages\":%d,\"distinct\":%d,\"duplicateCount\":%d,\"duplicates\":%s,"
                + "\"acknowledged\":%d,\"missingCount\":%d,\"missing\":%s,\"unacknowledgedPresent\":%d,\"queues\":%s}%n",
            topic, complete, messages, seen.cardinality(), messages - seen.cardinality(), first(duplicates),
            promised.cardinality(), missing.cardinality(), first(numbers(missing)), unpromised.cardinality(), queues);
        System.out.flush();
    }

    private static byte[] body(long number, int size) {
        byte[] head = (number + " ").getBytes(StandardCharsets.US_ASCII);
        byte[] body = Arrays.copyOf(head, Math.max(size, head.length));
        Arrays.fill(body, head.length, body.length, (byte) 'x');
        return body;
    }

    private static int number(byte[] body) {
        int number = 0;
        for (int i = 0; i < body.length && body[i] != ' '; i++) {
            number = Math.addExact(Math.multiplyExact(number, 10), body[i] - '0');
        }
        return number;
    }

    private static List<Integer> numbers(BitSet set) {
        List<Integer> numbers = new ArrayList<>();
        set.stream().limit(LISTED).forEach(numbers::add);
        return numbers;
    }

    private static String first(Collection<Integer> numbers) {
        return new ArrayList<>(numbers).subList(0, Math.min(LISTED, numbers.size())).toString();
    }

    private static void sleep(int milliseconds) {
        LockSupport.parkNanos(milliseconds * 1_000_000L);
    }

    /** Ends the sending: after its time, or earlier when whoever started us closes our standard input (or dies). */
    private static final class Stop {
        private final long end;
        private volatile boolean asked;

        Stop(boolean watchStdin, long end) {
            this.end = end;
            if (watchStdin) {
                Thread thread = new Thread(() -> {
                    try {
                        System.in.transferTo(java.io.OutputStream.nullOutputStream());
                    } catch (IOException closed) {
                        // as good as the end
                    }
                    asked = true;
                }, "stdin");
                thread.setDaemon(true);
                thread.start();
            }
        }

        boolean now() {
            return asked || System.nanoTime() - end >= 0;
        }
    }

    /**
     * Two tab separated files, acknowledged and failed attempts, each written by one thread that flushes whenever it has
     * caught up: a reader sees whole lines at once, and senders never wait for the disk.
     */
    private static final class Book {
        private static final String[] LAST = new String[0];
        private final LinkedBlockingQueue<String[]> lines = new LinkedBlockingQueue<>();
        private final Thread writer;

        Book(Path file) throws IOException {
            BufferedWriter good = Files.newBufferedWriter(file);
            BufferedWriter bad = Files.newBufferedWriter(file.resolveSibling(file.getFileName() + ".failures"));
            writer = new Thread(() -> {
                try (good; bad) {
                    for (String[] line = lines.take(); line != LAST; line = lines.take()) {
                        (line[0].equals("+") ? good : bad).write(line[1]);
                        if (lines.isEmpty()) {
                            good.flush();
                            bad.flush();
                        }
                    }
                } catch (IOException | InterruptedException failure) {
                    failure.printStackTrace();
                    System.exit(1); // a ledger that cannot be kept proves nothing
                }
            }, "book");
            writer.start();
        }

        void acknowledged(long number, long now, long start, SendResult result) {
            lines.add(new String[] {"+", line(number, now, start, result.getSendStatus().name(), result.getMsgId())});
        }

        void failed(long number, long now, long start, Exception failure) {
            Throwable cause = failure; // the client wraps what happened into general advice
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            String text = String.valueOf(cause.getMessage()).replaceAll("[\\t\\r\\n]+", " ");
            lines.add(new String[] {"-", line(number, now, start, cause.getClass().getSimpleName(), text)});
        }

        private static String line(long number, long now, long start, String status, String rest) {
            return number + "\t" + System.currentTimeMillis() + "\t" + now + "\t" + (now - start) / 1000 + "\t" + status + "\t" + rest + "\n";
        }

        void close() throws InterruptedException {
            lines.add(LAST);
            writer.join();
        }
    }
}
