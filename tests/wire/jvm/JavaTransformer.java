import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What transformer.py is, with the Java clients: BOOTSTRAP SOURCE TARGET GROUP SLOT PROTOCOL. Consumes, transforms and
 * produces, ten records a transaction, until it is killed; its work takes time between all steps, and at any failure
 * it ends. It keeps nothing for itself.
 */
public final class JavaTransformer {
    private static final int WAIT_MS_MAX = 120_000;
    private static final int TRANSACTION_MS_MAX = 60_000;
    private static final long WORK_MS_MAX = 10;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], source = args[1], target = args[2], group = args[3], slot = args[4];
        String protocol = args[5];
        Map<String, Object> reading = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "group.protocol", protocol, "isolation.level", "read_committed", "enable.auto.commit", false,
            "auto.offset.reset", "earliest", "max.poll.records", 10, "fetch.max.wait.ms", 50));
        if (protocol.equals("classic")) {
            // A successor takes the place of the one before at once; in the newer protocol it would have to wait for
            // the end of that one's session.
            reading.putAll(Map.of("group.instance.id", slot, "heartbeat.interval.ms", 200, "session.timeout.ms", 60_000));
        }
        Map<String, Object> writing = Map.of("bootstrap.servers", bootstrap, "transactional.id", group + "-" + slot,
            "transaction.timeout.ms", TRANSACTION_MS_MAX, "max.block.ms", WAIT_MS_MAX, "linger.ms", 0);
        try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true)
                transform(producer, consumer, target);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void transform(
        KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, String target
    ) throws InterruptedException {
        var records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty())
            return;
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
            next.put(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        work();
        producer.flush();
        work();
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        work();
        producer.commitTransaction();
        work();
    }

    private static void work() throws InterruptedException {
        Thread.sleep(ThreadLocalRandom.current().nextLong(WORK_MS_MAX));
    }
}
