import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads so many records of a topic, all partitions assigned and no group, and prints one line of JSON.
 * Settings, loop and clock are those of Kafka's ConsumerPerformance, whose fetch time leaves out the joining of
 * a group: here the clock starts at the assignment.
 *
 *     java -cp 'JARS/*' ConsumeAll.java ADDRESS TOPIC RECORDS
 */
public class ConsumeAll {
    private static final long STALL_MS_MAX = 30_000;

    public static void main(String[] args) {
        long goal = Long.parseLong(args[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("receive.buffer.bytes", "2097152");
        settings.put("max.partition.fetch.bytes", "1048576");
        settings.put("auto.offset.reset", "earliest");
        settings.put("check.crcs", "false");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions = consumer.partitionsFor(args[1]).stream()
                .map(info -> new TopicPartition(info.topic(), info.partition()))
                .toList();
            long records = 0;
            long bytes = 0;
            long began = System.currentTimeMillis();
            long last = began;
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (records < goal) {
                ConsumerRecords<byte[], byte[]> some = consumer.poll(Duration.ofMillis(100));
                long now = System.currentTimeMillis();
                if (!some.isEmpty()) {
                    last = now;
                } else if (now - last > STALL_MS_MAX) {
                    System.err.printf("no record for %d ms after %d of %d%n", STALL_MS_MAX, records, goal);
                    System.exit(1);
                }
                for (ConsumerRecord<byte[], byte[]> record : some) {
                    records += 1;
                    bytes += (record.key() == null ? 0 : record.key().length) + record.value().length;
                }
            }
            double seconds = (System.currentTimeMillis() - began) / 1000.0;
            System.out.printf(Locale.ROOT, "{\"records\": %d, \"rec_s\": %.1f, \"MB_s\": %.1f}%n",
                records, records / seconds, bytes / seconds / 1e6);
        }
    }
}
