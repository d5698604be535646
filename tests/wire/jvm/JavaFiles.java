import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/** Reads the small files beside the segments with the classes that an Apache Kafka broker reads them with. */
public final class JavaFiles {
    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        File partition = new File(directory, args[1]);
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        List<String> epochs = new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(partition), failures)
            .read().stream().map(entry -> entry.epoch() + "@" + entry.startOffset()).toList();
        JavaClient.print(Map.of("leaderEpochs", epochs));
        PartitionMetadataFile metadata = new PartitionMetadataFile(PartitionMetadataFile.newFile(partition), failures);
        JavaClient.print(Map.of("topicId", metadata.exists() ? metadata.read().topicId().toString() : ""));
        for (String name : new String[] {"recovery-point-offset-checkpoint", "log-start-offset-checkpoint"}) {
            Map<String, Long> offsets = new TreeMap<>();
            File file = new File(directory, name);
            if (file.exists())
                for (Map.Entry<TopicPartition, Long> entry : new OffsetCheckpointFile(file, failures).read().entrySet())
                    offsets.put(entry.getKey().toString(), entry.getValue());
            JavaClient.print(Map.of(name, offsets));
        }
    }
}
