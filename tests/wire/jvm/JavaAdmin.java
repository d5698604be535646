import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The Java admin client: the life of a topic, step by step; every step prints one JSON object. */
public final class JavaAdmin {
    private static final long WAIT_S_MAX = 120;

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[1]))) {
            switch (args[0]) {
                case "life-of-a-topic" -> lifeOfATopic(admin, args[2]);
                case "records-and-offsets" -> recordsAndOffsets(admin, args[2]);
                case "refusals" -> refusals(admin, args[2]);
                case "cluster" -> cluster(admin, args[2]);
                default -> throw new IllegalArgumentException(args[0]);
            }
        }
    }

    private static void lifeOfATopic(Admin admin, String topic) throws Exception {
        var created = admin.createTopics(List.of(
            new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "7000"))));
        get(created.all());
        Uuid id = get(created.topicId(topic));
        print("created", Map.of("partitions", get(created.numPartitions(topic)),
            "replicationFactor", get(created.replicationFactor(topic)),
            "retention.ms", get(created.config(topic)).get("retention.ms").value(), "id", id.toString()));

        await(() -> partitions(admin, topic).size() == 3);
        print("listed", Map.of("there", get(admin.listTopics().names()).contains(topic)));
        var byId = get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id);
        print("described", Map.of("byName", partitions(admin, topic), "nameById", byId.name(),
            "leaders", byId.partitions().stream().map(TopicPartitionInfo::leader).map(Node::id).distinct().count()));

        get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
        await(() -> partitions(admin, topic).size() == 5);
        print("grown", Map.of("partitions", partitions(admin, topic)));

        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        get(admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("segment.ms", "9000"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE)))).all());
        await(() -> setting(admin, resource, "segment.ms").value().equals("9000"));
        print("altered", Map.of("segment.ms", setting(admin, resource, "segment.ms").source().name(),
            "retention.ms", setting(admin, resource, "retention.ms").value()));

        get(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
        await(() -> !get(admin.listTopics().names()).contains(topic));
        String afterwards = failure(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds());
        print("deleted", Map.of("describeById", afterwards));
    }

    private static void recordsAndOffsets(Admin admin, String topic) throws Exception {
        var here = new TopicPartition(topic, 0);
        Map<String, Object> listed = new LinkedHashMap<>();
        for (var each : Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
                "maxTimestamp", OffsetSpec.maxTimestamp(), "byTime", OffsetSpec.forTimestamp(JavaClient.BASE_MS + 4),
                "earliestLocal", OffsetSpec.earliestLocal()).entrySet())
            listed.put(each.getKey(), get(admin.listOffsets(Map.of(here, each.getValue())).partitionResult(here)).offset());
        print("offsets", listed);
        var deleted = admin.deleteRecords(Map.of(here, RecordsToDelete.beforeOffset(6))).lowWatermarks().get(here);
        print("deleted", Map.of("lowWatermark", get(deleted).lowWatermark(), "earliest",
            get(admin.listOffsets(Map.of(here, OffsetSpec.earliest())).partitionResult(here)).offset()));
    }

    private static void refusals(Admin admin, String existing) throws Exception {
        Map<String, String> refused = new TreeMap<>();
        refused.put("exists", failure(admin.createTopics(List.of(new NewTopic(existing, 1, (short) 1))).all()));
        refused.put("name", failure(admin.createTopics(List.of(new NewTopic("no good", 1, (short) 1))).all()));
        refused.put("partitions", failure(admin.createTopics(List.of(new NewTopic(existing + "x", 0, (short) 1))).all()));
        refused.put("replicas", failure(admin.createTopics(List.of(new NewTopic(existing + "x", 1, (short) 2))).all()));
        refused.put("setting", failure(admin.createTopics(List.of(
            new NewTopic(existing + "x", 1, (short) 1).configs(Map.of("retention.mz", "1")))).all()));
        refused.put("shrink", failure(admin.createPartitions(Map.of(existing, NewPartitions.increaseTo(1))).all()));
        refused.put("unknown", failure(admin.deleteTopics(List.of(existing + "x")).all()));
        refused.put("beyond", failure(admin.deleteRecords(Map.of(
            new TopicPartition(existing, 0), RecordsToDelete.beforeOffset(1000))).all()));
        print("refused", refused);
    }

    private static void cluster(Admin admin, String topic) throws Exception {
        var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        Node node = get(cluster.nodes()).iterator().next();
        print("cluster", Map.of("nodes", get(cluster.nodes()).size(), "id", get(cluster.clusterId()),
            "controller", get(cluster.controller()).id(), "node", node.id(), "address", node.host() + ":" + node.port()));
        var broker = new ConfigResource(ConfigResource.Type.BROKER, node.idString());
        print("settings", Map.of("message.max.bytes", setting(admin, broker, "message.max.bytes").value(),
            "log.retention.hours", setting(admin, broker, "log.retention.hours").value()));
        var directories = get(admin.describeLogDirs(List.of(node.id())).allDescriptions()).get(node.id());
        long size = directories.values().stream()
            .flatMap(directory -> directory.replicaInfos().entrySet().stream())
            .filter(replica -> replica.getKey().equals(new TopicPartition(topic, 0)))
            .mapToLong(replica -> replica.getValue().size()).sum();
        print("directories", Map.of("count", directories.size(), "size", size,
            "usable", directories.values().stream().allMatch(d -> d.usableBytes().orElse(0) > 0 && d.error() == null)));
        print("features", Map.of("finalized", get(admin.describeFeatures().featureMetadata()).finalizedFeatures().size()));
    }

    private static TreeSet<Integer> partitions(Admin admin, String topic) throws Exception {
        try {
            return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().stream()
                .map(TopicPartitionInfo::partition).collect(Collectors.toCollection(TreeSet::new));
        } catch (ExecutionException notYet) {
            if (notYet.getCause() instanceof UnknownTopicOrPartitionException)
                return new TreeSet<>();
            throw notYet;
        }
    }

    private static ConfigEntry setting(Admin admin, ConfigResource resource, String name) throws Exception {
        return get(admin.describeConfigs(List.of(resource)).all()).get(resource).get(name);
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(WAIT_S_MAX, TimeUnit.SECONDS);
    }

    private static String failure(KafkaFuture<?> future) throws Exception {
        try {
            get(future);
            return "none";
        } catch (ExecutionException refused) {
            return refused.getCause().getClass().getSimpleName();
        }
    }

    /** A controller's answer may be ahead of the broker's metadata. */
    private static void await(Callable<Boolean> done) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S_MAX);
        while (!done.call()) {
            if (System.nanoTime() > deadline)
                throw new AssertionError("not within " + WAIT_S_MAX + " s");
            Thread.sleep(20);
        }
    }

    private static void print(String step, Map<String, ?> seen) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", step);
        line.putAll(seen);
        JavaClient.print(line);
    }
}
