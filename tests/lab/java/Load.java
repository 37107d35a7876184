package io.github.rocketmqha.lab;

import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * How many sends per second the official client gets acknowledged, with a fixed number in flight (its asynchronous
 * sends). One line of JSON for each number of {@code --in-flight}, in one process, so that the JIT knows the way.
 */
public final class Load {
    private Load() {
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        DefaultMQProducer producer = new DefaultMQProducer("load-" + ProcessHandle.current().pid());
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setVipChannelEnabled(false);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(options.number("timeout-ms", 5000));
        producer.start();
        byte[] body = new byte[options.number("size", 1024)];
        Arrays.fill(body, (byte) 'x');
        for (String text : options.text("in-flight").split(",")) {
            measure(producer, options.text("topic"), body, Integer.parseInt(text), options);
        }
        producer.shutdown();
        System.exit(0); // the client library leaves threads behind that are no daemons
    }

    private static void measure(DefaultMQProducer producer, String topic, byte[] body, int inFlight, Options options)
        throws InterruptedException {
        Semaphore free = new Semaphore(inFlight);
        AtomicLong acknowledged = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        long begin = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(options.number("warm-up-ms", 2000));
        long span = TimeUnit.MILLISECONDS.toNanos(options.number("millis", 4000));
        while (System.nanoTime() - begin < span) {
            free.acquire();
            try {
                producer.send(new Message(topic, body), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        count(result.getSendStatus() == SendStatus.SEND_OK ? acknowledged : failed, begin, span);
                        free.release();
                    }

                    @Override
                    public void onException(Throwable failure) {
                        count(failed, begin, span);
                        free.release();
                    }
                });
            } catch (Exception failure) {
                count(failed, begin, span);
                free.release();
            }
        }
        free.acquire(inFlight);
        System.out.printf("{\"inFlight\":%d,\"perSecond\":%.1f,\"failed\":%d}%n",
            inFlight, acknowledged.get() * 1e9 / span, failed.get());
        System.out.flush();
    }

    private static void count(AtomicLong counter, long begin, long span) {
        long since = System.nanoTime() - begin;
        if (since >= 0 && since < span) {
            counter.incrementAndGet();
        }
    }
}
