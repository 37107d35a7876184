import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Everything an ordinary application does with a broker, once: sends of every kind, a push consumer that takes, delays
 * and refuses messages, an orderly one, a transaction that is asked for. Arguments: name servers, topic. Prints an id of
 * a message and stays until its standard input ends. Run by client_capture.py as a source file.
 */
public class GoldenClients {
    public static void main(String[] arguments) {
        try {
            run(arguments);
            System.exit(0); // some of the clients' threads would stay
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        String names = arguments[0];
        String topic = arguments[1];

        TransactionMQProducer producer = new TransactionMQProducer("golden-producer");
        producer.setNamesrvAddr(names);
        producer.setMqClientApiTimeout(30_000);
        CountDownLatch checked = new CountDownLatch(1);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return argument == null ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.countDown();
                return LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.setSendMsgTimeout(30_000);
        producer.start();

        SendResult sent = producer.send(new Message(topic, "TagA", "key-1", "plain".getBytes()));
        producer.send(new Message(topic, "TagB", "key-2", new byte[5000])); // long enough to be compressed
        producer.send(List.of(new Message(topic, "TagA", "b-1", "one".getBytes()), new Message(topic, "TagA", "b-2", "two".getBytes())));
        Message delayed = new Message(topic, "TagA", "delayed", "later".getBytes());
        delayed.setDelayTimeLevel(1);
        producer.send(delayed);
        producer.sendOneway(new Message(topic, "TagA", "oneway", "no answer".getBytes()));
        producer.sendMessageInTransaction(new Message(topic, "TagA", "tx-1", "committed".getBytes()), null);
        producer.sendMessageInTransaction(new Message(topic, "TagA", "tx-2", "asked for".getBytes()), "unknown");

        CountDownLatch taken = new CountDownLatch(7);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("golden-group");
        consumer.setNamesrvAddr(names);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.subscribe(topic, "TagA || TagB");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            taken.countDown();
            boolean first = messages.get(0).getReconsumeTimes() == 0 && "key-1".equals(messages.get(0).getKeys());
            context.setDelayLevelWhenNextConsume(1);
            return first ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        DefaultMQPushConsumer timed = new DefaultMQPushConsumer("golden-timed");
        timed.setNamesrvAddr(names);
        timed.setMqClientApiTimeout(30_000);
        timed.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        timed.subscribe(topic, "*");
        timed.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        timed.start();

        DefaultMQPushConsumer orderly = new DefaultMQPushConsumer("golden-orderly");
        orderly.setNamesrvAddr(names);
        orderly.setMqClientApiTimeout(30_000);
        orderly.subscribe(topic, "*");
        orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> ConsumeOrderlyStatus.SUCCESS);
        orderly.start();

        taken.await(30, TimeUnit.SECONDS);
        checked.await(40, TimeUnit.SECONDS);
        TimeUnit.SECONDS.sleep(3); // offsets are committed every second
        System.out.println("offsetMsgId " + sent.getOffsetMsgId() + " " + sent.getMsgId());
        while (System.in.read() >= 0) {
        }
        timed.shutdown();
        orderly.shutdown();
        consumer.shutdown();
        producer.shutdown();
    }
}
