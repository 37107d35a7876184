package io.github.rocketmqha.lab;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageQueueListener;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The official clients, one line of tab separated text for whatever happens: {@code send} in each way there is, {@code
 * push} and {@code pull} until standard input ends, {@code request}, {@code reply} and {@code commit}.
 * Bodies are the prefix, the way, and a number.
 */
public final class Clients {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Clients() {
    }

    public static void main(String[] args) {
        int code = 0;
        QuickEnd.watch();
        try {
            run(new Options(args));
        } catch (Throwable failure) {
            failure.printStackTrace();
            code = 1;
        }
        OUT.flush();
        System.exit(code); // the client library leaves threads behind that are no daemons
    }

    private static void run(Options options) throws Exception {
        switch (options.mode) {
            case "send":
                send(options);
                break;
            case "push":
                push(options);
                break;
            case "pull":
                pull(options);
                break;
            case "request":
                request(options);
                break;
            case "reply":
                reply(options);
                break;
            case "commit":
                commit(options);
                break;
            default:
                throw new IllegalArgumentException("no such mode: " + options.mode);
        }
    }

    /** {@code --ways sync,batch,async,oneway,delayed}: {@code --count} messages each; tags in turns. */
    private static void send(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("clients-" + ProcessHandle.current().pid());
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(options.number("timeout-ms", 10_000));
        producer.start();
        for (String way : options.text("ways").split(",")) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < options.number("count", 1); i++) {
                messages.add(message(options, way, i));
            }
            switch (way) {
                case "sync":
                case "delayed":
                    for (Message message : messages) {
                        sent(way, producer.send(message));
                    }
                    break;
                case "batch":
                    sent(way, producer.send(messages));
                    break;
                case "async":
                    sendAsync(producer, messages);
                    break;
                case "oneway":
                    for (Message message : messages) {
                        producer.sendOneway(message);
                    }
                    break;
                default:
                    throw new IllegalArgumentException(way);
            }
        }
        producer.shutdown();
    }

    private static Message message(Options options, String way, int number) {
        String[] tags = options.has("tags") ? options.text("tags").split(",") : new String[] {""};
        String body = options.text("prefix") + way + " " + number;
        Message message = new Message(options.text("topic"), tags[number % tags.length], "key-" + number,
            body.getBytes(StandardCharsets.UTF_8));
        if (way.equals("delayed")) {
            message.setDelayTimeLevel(1);
        }
        return message;
    }

    private static void sendAsync(DefaultMQProducer producer, Collection<Message> messages) throws Exception {
        CountDownLatch open = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent("async", result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    line("failed", "async", failure);
                    open.countDown();
                }
            });
        }
        open.await(60, TimeUnit.SECONDS);
    }

    private static void sent(String way, SendResult result) {
        line("sent", way, result.getSendStatus(), result.getMsgId(), result.getOffsetMsgId(),
            result.getMessageQueue().getQueueId(), result.getQueueOffset());
    }

    private static void push(Options options) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setInstanceName(options.text("instance"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(500);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setMessageQueueListener(queues());
        consumer.subscribe(options.text("topic"), options.text("tags"));
        String again = options.has("again") ? options.text("again") : null; // bodies that are refused once
        if (options.has("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Clients::received);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener(concurrently(again));
        }
        consumer.start();
        line("started");
        waitForEnd();
        consumer.shutdown();
    }

    private static MessageListenerConcurrently concurrently(String again) {
        return (messages, context) -> {
            boolean later = false;
            for (MessageExt message : messages) {
                received(message);
                later |= again != null && body(message).startsWith(again) && message.getReconsumeTimes() == 0;
            }
            context.setDelayLevelWhenNextConsume(1);
            return later ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    private static void pull(Options options) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(options.text("topic"), options.text("tags"));
        consumer.start();
        line("started");
        long wanted = options.number("count", 1);
        while (wanted > 0) {
            List<MessageExt> messages = consumer.poll(1000);
            messages.forEach(Clients::received);
            consumer.commit();
            wanted -= messages.size();
        }
        consumer.shutdown(); // commits what is on the way
    }

    /**
     * {@code --count} requests, one after the other; each waits for its reply. With a queue and a callback: 5.3.3's
     * other forms of {@code request} end when the request is sent, whatever the broker does.
     */
    private static void request(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("requesters");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.start();
        MessageQueue queue = producer.fetchPublishMessageQueues(options.text("topic")).get(0);
        for (long number = 0; number < options.number("count", 1); number++) {
            byte[] body = ("request " + number).getBytes(StandardCharsets.UTF_8);
            CompletableFuture<Message> reply = new CompletableFuture<>();
            producer.request(new Message(options.text("topic"), body), queue, new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    reply.complete(message);
                }

                @Override
                public void onException(Throwable failure) {
                    reply.completeExceptionally(failure);
                }
            }, 30_000);
            line("replied", new String(reply.get().getBody(), StandardCharsets.UTF_8));
        }
        producer.shutdown();
    }

    /** Replies to each message with "reply to" and its body. */
    private static void reply(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("repliers");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMessageQueueListener(queues());
        consumer.subscribe(options.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received(message);
                byte[] body = ("reply to " + body(message)).getBytes(StandardCharsets.UTF_8);
                try {
                    sent("reply", producer.send(MessageUtil.createReplyMessage(message, body), 10_000));
                } catch (Exception failure) {
                    line("failed", failure);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        line("started");
        waitForEnd();
        consumer.shutdown();
        producer.shutdown();
    }

    /** Sends nothing, and commits each half message of its group that a broker asks about. */
    private static void commit(Options options) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setTopics(List.of(options.text("topic"))); // so it meets the brokers of this topic
        producer.setHeartbeatBrokerInterval(1000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                throw new IllegalStateException("it sends nothing");
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                line("committed", body(message));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        line("started");
        waitForEnd();
        producer.shutdown();
    }

    private static MessageQueueListener queues() {
        return (topic, all, mine) -> line("queues", topic,
            mine.stream().map(MessageQueue::getQueueId).sorted().map(String::valueOf).collect(Collectors.joining(",")));
    }

    private static void received(MessageExt message) {
        line("received", body(message), message.getTopic(), message.getTags(), message.getQueueId(),
            message.getQueueOffset(), message.getReconsumeTimes(), message.getBornTimestamp(), System.currentTimeMillis());
    }

    private static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static synchronized void line(Object... values) {
        OUT.println(Arrays.stream(values).map(String::valueOf).collect(Collectors.joining("\t")));
    }

    private static void waitForEnd() throws IOException {
        System.in.transferTo(OutputStream.nullOutputStream());
    }
}
