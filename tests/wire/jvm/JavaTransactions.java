import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions with the Java producer, consumer and admin client: every step prints what was then seen. */
public final class JavaTransactions {
    private static final long WAIT_S_MAX = 120;
    private final String bootstrap;
    private final String topic;
    private final String name;

    private JavaTransactions(String bootstrap, String topic, String name) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.name = name;
    }

    public static void main(String[] args) throws Exception {
        JavaTransactions here = new JavaTransactions(args[1], args[2], args[3]);
        switch (args[0]) {
            case "life" -> here.life();
            case "fencing" -> here.fencing();
            case "transform" -> here.transform(args[4], Integer.parseInt(args[5]), args[6]);
            case "admin" -> here.admin();
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private KafkaProducer<String, String> producer() {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", name,
            "max.block.ms", WAIT_S_MAX * 1000);
        var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<String, String> consumer(Map<String, Object> given) {
        Map<String, Object> config = new HashMap<>(given);
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("fetch.max.wait.ms", 50);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private List<String> read(String isolation) {
        try (var consumer = consumer(Map.of("isolation.level", isolation))) {
            var zero = new TopicPartition(topic, 0);
            consumer.assign(List.of(zero));
            consumer.seekToBeginning(List.of(zero));
            long end = consumer.endOffsets(List.of(zero)).get(zero);
            List<String> values = new ArrayList<>();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S_MAX);
            while (consumer.position(zero) < end && System.nanoTime() < deadline)
                consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
            return values;
        }
    }

    /** Until no transaction is open: a commit may be answered before it is written everywhere. */
    private void settle() throws Exception {
        var zero = List.of(new TopicPartition(topic, 0));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S_MAX);
        try (var committed = consumer(Map.of("isolation.level", "read_committed")); var all = consumer(Map.of())) {
            while (!committed.endOffsets(zero).equals(all.endOffsets(zero)) && System.nanoTime() < deadline)
                Thread.sleep(10);
        }
    }

    private void seen(String step) throws Exception {
        JavaClient.print(Map.of("step", step, "committed", read("read_committed"),
            "uncommitted", read("read_uncommitted")));
    }

    private void life() throws Exception {
        try (var producer = producer()) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "kept"));
            producer.flush();
            seen("open");
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "dropped"));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "kept too"));
            producer.commitTransaction();
            settle();
            seen("ended");
        }
    }

    private void fencing() throws Exception {
        try (var zombie = producer()) {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, "of the zombie"));
            zombie.flush();
            try (var next = producer()) {
                next.beginTransaction();
                next.send(new ProducerRecord<>(topic, "of the next"));
                next.commitTransaction();
            }
            String refused = "";
            try {
                zombie.commitTransaction();
            } catch (RuntimeException failure) {
                refused = failure.getClass().getSimpleName();
            }
            JavaClient.print(Map.of("step", "fenced", "refused", refused));
        }
        settle();
        seen("fenced");
    }

    /** Reads `count` values of the input, doubles each and writes it, offsets and all, ten a transaction. */
    private void transform(String input, int count, String protocol) throws Exception {
        Map<String, Object> config = Map.of("group.id", name, "group.protocol", protocol,
            "isolation.level", "read_committed", "max.poll.records", 10);
        int transactions = 0;
        try (var producer = producer(); var consumer = consumer(config)) {
            consumer.subscribe(List.of(input));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S_MAX);
            for (int done = 0; done < count && System.nanoTime() < deadline;) {
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                var records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty())
                    continue;
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(topic, "2 x " + record.value()));
                    next.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                    done++;
                }
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                // Every third is aborted once, and read again.
                if (++transactions % 3 == 0) {
                    producer.abortTransaction();
                    done -= records.count();
                    for (TopicPartition partition : records.partitions())
                        consumer.seek(partition, records.records(partition).get(0).offset());
                } else {
                    producer.commitTransaction();
                }
            }
            settle();
            var zero = new TopicPartition(input, 0);
            var kept = consumer.committed(Set.of(zero)).get(zero);
            JavaClient.print(Map.of("step", "transformed", "values", read("read_committed"),
                "offset", kept == null ? -1 : kept.offset()));
        }
    }

    private void admin() throws Exception {
        try (var producer = producer(); Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "open"));
            producer.flush();
            var zero = new TopicPartition(topic, 0);
            var described = admin.describeTransactions(List.of(name)).all().get(WAIT_S_MAX, TimeUnit.SECONDS).get(name);
            var listed = admin.listTransactions().all().get(WAIT_S_MAX, TimeUnit.SECONDS).stream()
                .filter(each -> each.transactionalId().equals(name)).findFirst().orElseThrow();
            var active = admin.describeProducers(List.of(zero)).partitionResult(zero)
                .get(WAIT_S_MAX, TimeUnit.SECONDS).activeProducers().get(0);
            JavaClient.print(Map.of("step", "described", "state", described.state().toString(),
                "partitions", described.topicPartitions().toString(), "listed", listed.state().toString(),
                "sameProducer", described.producerId() == active.producerId(),
                "start", active.currentTransactionStartOffset().orElse(-1)));
            admin.fenceProducers(List.of(name)).all().get(WAIT_S_MAX, TimeUnit.SECONDS);
            String refused = "";
            try {
                producer.commitTransaction();
            } catch (RuntimeException failure) {
                refused = failure.getClass().getSimpleName();
            }
            JavaClient.print(Map.of("step", "fenced", "refused", refused));
        }
        settle();
        seen("fenced");
    }
}
