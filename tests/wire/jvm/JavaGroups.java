import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Groups with the Java consumer, by both protocols: every step prints what the members then had. */
public final class JavaGroups {
    private static final long WAIT_S_MAX = 120;
    private final String scenario;
    private final String bootstrap;
    private final String topic;
    private final String group;
    private final List<KafkaConsumer<String, String>> members = new ArrayList<>();

    private JavaGroups(String scenario, String bootstrap, String topic, String group) {
        this.scenario = scenario;
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = group;
    }

    /** bootstrap, then `scenario=topic` for each: all at once, since most of their time is waiting. */
    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int n = 1; n < args.length; n++) {
            String[] pair = args[n].split("=");
            JavaGroups groups = new JavaGroups(pair[0], args[0], pair[1], pair[1] + "-group");
            threads.add(new Thread(groups::run));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads)
            thread.join();
    }

    private void run() {
        try {
            switch (scenario) {
                case "classic" -> rebalance(Map.of());
                case "cooperative" -> rebalance(
                    Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName()));
                case "consumer" -> rebalance(Map.of("group.protocol", "consumer"));
                case "migration" -> migrate();
                case "regex" -> regex();
                case "admin" -> admin();
                default -> throw new IllegalArgumentException(scenario);
            }
        } catch (Exception | AssertionError failure) {
            print("failed", Map.of("failure", failure.toString()));
        } finally {
            members.forEach(KafkaConsumer::close);
        }
    }

    private void print(String step, Map<String, ?> seen) {
        Map<String, Object> line = new TreeMap<>(seen);
        line.put("scenario", scenario);
        line.put("step", step);
        synchronized (JavaGroups.class) {
            try {
                JavaClient.print(line);
            } catch (Exception impossible) {
                throw new IllegalStateException(impossible);
            }
        }
    }

    private KafkaConsumer<String, String> join(Map<String, Object> given) {
        KafkaConsumer<String, String> consumer = open(given);
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private KafkaConsumer<String, String> open(Map<String, Object> given) {
        Map<String, Object> config = new HashMap<>(given);
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("fetch.max.wait.ms", 50);
        if (!"consumer".equals(given.get("group.protocol"))) {
            config.put("heartbeat.interval.ms", 100);
            config.put("session.timeout.ms", 300_000);  // no member loses its place to a slow machine
        }
        var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        members.add(consumer);
        return consumer;
    }

    private void leave(KafkaConsumer<?, ?> member) {
        members.remove(member);
        member.close();
    }

    /** Polls every member in turn until it is so. */
    private void until(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S_MAX);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline)
                throw new IllegalStateException(what + ": not within " + WAIT_S_MAX + " s; " + shares());
            members.forEach(member -> member.poll(Duration.ofMillis(20)));
        }
    }

    private List<Integer> shares() {
        return members.stream().map(member -> member.assignment().size()).sorted().collect(Collectors.toList());
    }

    private void settle(String step, Integer... sizes) throws Exception {
        until(step, () -> {
            Set<TopicPartition> owned = new HashSet<>();
            members.forEach(member -> owned.addAll(member.assignment()));
            return shares().equals(List.of(sizes)) && owned.size() == shares().stream().mapToInt(n -> n).sum();
        });
        print(step, Map.of("shares", shares()));
    }

    private void rebalance(Map<String, Object> config) throws Exception {
        var first = join(config);
        settle("one", 4);
        first.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(3, "of three")));
        var second = join(config);
        settle("two", 2, 2);
        leave(first);
        settle("left", 4);
        var zero = new TopicPartition(topic, 0);
        var kept = second.committed(Set.of(zero)).get(zero);
        print("committed", Map.of("offset", kept.offset(), "metadata", kept.metadata()));
    }

    private void migrate() throws Exception {
        Map<String, Object> modern = Map.of("group.protocol", "consumer");
        var old = join(Map.of());
        settle("classic", 4);
        old.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(3)));
        var fresh = join(modern);
        settle("mixed", 2, 2);
        type("mixed-type");
        leave(old);
        settle("consumer", 4);
        var back = join(Map.of());
        settle("mixed-again", 2, 2);
        leave(fresh);
        settle("classic-again", 4);
        type("classic-type");
        var zero = new TopicPartition(topic, 0);
        print("committed", Map.of("offset", back.committed(Set.of(zero)).get(zero).offset()));
    }

    private void type(String step) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var found = admin.listGroups().all().get(WAIT_S_MAX, TimeUnit.SECONDS).stream()
                .filter(each -> each.groupId().equals(group)).findFirst().orElseThrow();
            print(step, Map.of("type", found.type().orElseThrow().toString()));
        }
    }

    private void regex() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic + "-b", 1, (short) 1))).all().get();
        }
        var consumer = open(Map.of("group.protocol", "consumer"));
        consumer.subscribe(new SubscriptionPattern(topic + ".*"));
        until("regex", () -> consumer.assignment().size() == 5);
        var topics = consumer.assignment().stream().map(TopicPartition::topic).collect(Collectors.toSet());
        print("regex", Map.of("topics", new TreeSet<>(topics)));
    }

    private void admin() throws Exception {
        var zero = new TopicPartition(topic, 0);
        var member = join(Map.of("group.instance.id", "one", "client.id", "the-client"));
        settle("one", 4);
        member.commitSync(Map.of(zero, new OffsetAndMetadata(3), new TopicPartition(topic, 1), new OffsetAndMetadata(4)));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var listed = get(admin.listGroups(ListGroupsOptions.forConsumerGroups()).all()).stream()
                .filter(each -> each.groupId().equals(group)).findFirst().orElseThrow();
            print("listed", Map.of("state", listed.groupState().orElseThrow().toString(),
                "type", listed.type().orElseThrow().toString(), "protocol", listed.protocol()));
            ConsumerGroupDescription found = describe(admin);
            var only = found.members().iterator().next();
            print("described", Map.of("state", found.groupState().toString(),
                "assignor", found.partitionAssignor(), "client", only.clientId(), "host", only.host(),
                "instance", only.groupInstanceId().orElse(""), "partitions", only.assignment().topicPartitions().size()));
            print("offsets", Map.of("offsets", offsets(admin)));
            print("refused", Map.of("alter", failure(admin.alterConsumerGroupOffsets(group, Map.of(zero, new OffsetAndMetadata(1))).all()),
                "deleteOffsets", failure(admin.deleteConsumerGroupOffsets(group, Set.of(zero)).partitionResult(zero)),
                "delete", failure(admin.deleteConsumerGroups(List.of(group)).all())));
            members.remove(member);
            get(admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all());
            member.close();
            print("removed", Map.of("state", describe(admin).groupState().toString()));
            get(admin.alterConsumerGroupOffsets(group, Map.of(zero, new OffsetAndMetadata(1))).all());
            get(admin.deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(topic, 1))).all());
            print("altered", Map.of("offsets", offsets(admin)));
            get(admin.deleteConsumerGroups(List.of(group)).all());
            print("deleted", Map.of("describe", failure(admin.describeConsumerGroups(List.of(group)).all()),
                "delete", failure(admin.deleteConsumerGroups(List.of(group)).all())));
        }
    }

    private ConsumerGroupDescription describe(Admin admin) throws Exception {
        return get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    private Map<String, Long> offsets(Admin admin) throws Exception {
        Map<String, Long> found = new TreeMap<>();
        get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
            .forEach((partition, offset) -> found.put(Integer.toString(partition.partition()), offset.offset()));
        return found;
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(WAIT_S_MAX, TimeUnit.SECONDS);
    }

    private static String failure(KafkaFuture<?> future) throws Exception {
        try {
            get(future);
            return "";
        } catch (ExecutionException refused) {
            return refused.getCause().getClass().getSimpleName();
        }
    }
}
