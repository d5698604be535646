import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java producer and consumer: every command prints what the client saw, one JSON object a line. */
public final class JavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long WAIT_S_MAX = 120;
    static final long BASE_MS = 1_600_000_000_000L;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[1];
        String topic = args[2];
        switch (args[0]) {
            case "produce" -> produce(bootstrap, topic, args[3], Integer.parseInt(args[4]));
            case "consume" -> consume(bootstrap, topic, Integer.parseInt(args[3]));
            case "offsets" -> offsets(bootstrap, topic);
            case "too-large" -> tooLarge(bootstrap, topic);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static Map<String, Object> producerConfig(String bootstrap, String codec) {
        return Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", 5,
            "max.request.size", 10_000_000, "max.block.ms", WAIT_S_MAX * 1000);
    }

    /** Idempotent, as by default: `count` records with a key, a header and a timestamp each. */
    private static void produce(String bootstrap, String topic, String codec, int count) throws Exception {
        try (var producer = new KafkaProducer<>(
                producerConfig(bootstrap, codec), new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                var record = new ProducerRecord<>(topic, null, BASE_MS + n, "key-" + n, "value-" + n + "é".repeat(20));
                record.headers().add("n", Integer.toString(n).getBytes(StandardCharsets.UTF_8));
                sent.add(producer.send(record));
            }
            for (int n = 0; n < count; n++) {
                RecordMetadata metadata = sent.get(n).get(WAIT_S_MAX, TimeUnit.SECONDS);
                print(Map.of("key", "key-" + n, "partition", metadata.partition(), "offset", metadata.offset()));
            }
        }
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "fetch.max.wait.ms", 50,
            "default.api.timeout.ms", (int) WAIT_S_MAX * 1000);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private static List<TopicPartition> partitions(KafkaConsumer<?, ?> consumer, String topic) {
        return consumer.partitionsFor(topic).stream()
            .map((PartitionInfo found) -> new TopicPartition(topic, found.partition()))
            .collect(Collectors.toList());
    }

    /** By assign, from the beginning of every partition. */
    private static void consume(String bootstrap, String topic, int count) throws Exception {
        try (var consumer = consumer(bootstrap)) {
            var here = partitions(consumer, topic);
            consumer.assign(here);
            consumer.seekToBeginning(here);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S_MAX);
            int received = 0;
            while (received < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    print(describe(record));
                    received++;
                }
            }
        }
    }

    private static Map<String, Object> describe(ConsumerRecord<String, String> record) {
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("partition", record.partition());
        seen.put("offset", record.offset());
        seen.put("timestamp", record.timestamp());
        seen.put("timestampType", record.timestampType().name);
        seen.put("key", record.key());
        seen.put("value", record.value());
        Map<String, String> headers = new LinkedHashMap<>();
        record.headers().forEach(h -> headers.put(h.key(), new String(h.value(), StandardCharsets.UTF_8)));
        seen.put("headers", headers);
        seen.put("leaderEpoch", record.leaderEpoch().orElse(-1));
        return seen;
    }

    private static void offsets(String bootstrap, String topic) throws Exception {
        try (var consumer = consumer(bootstrap)) {
            var zero = new TopicPartition(topic, 0);
            consumer.assign(List.of(zero));
            print(Map.of("beginning", consumer.beginningOffsets(List.of(zero)).get(zero),
                "end", consumer.endOffsets(List.of(zero)).get(zero)));
            Map<String, Object> byTime = new LinkedHashMap<>();
            for (long after : new long[] {-1, 0, 1, 5, 1_000_000}) {
                var found = consumer.offsetsForTimes(Map.of(zero, BASE_MS + after)).get(zero);
                byTime.put(Long.toString(after), found == null ? null : found.offset());
            }
            print(byTime);
            for (long offset : new long[] {7, 0, 3}) {
                consumer.seek(zero, offset);
                var records = consumer.poll(Duration.ofSeconds(WAIT_S_MAX)).records(zero);
                print(Map.of("sought", offset, "found", records.get(0).offset(),
                    "position", consumer.position(zero), "count", records.size()));
            }
        }
    }

    private static void tooLarge(String bootstrap, String topic) throws Exception {
        try (var producer = new KafkaProducer<>(
                producerConfig(bootstrap, "none"), new StringSerializer(), new StringSerializer())) {
            for (int size : new int[] {100, 2_000_000, 100}) {
                try {
                    long offset = producer.send(new ProducerRecord<>(topic, "x".repeat(size)))
                        .get(WAIT_S_MAX, TimeUnit.SECONDS).offset();
                    print(Map.of("size", size, "offset", offset));
                } catch (ExecutionException refused) {
                    print(Map.of("size", size, "refused", refused.getCause().getClass().getSimpleName()));
                }
            }
        }
    }

    static void print(Object seen) throws Exception {
        System.out.println(JSON.writeValueAsString(seen));
    }
}
