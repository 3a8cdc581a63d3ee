import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.common.*;

/** Prints shares of Java's assignors by rack, as ranges.txt has them: java -cp "KAFKA_4_JARS/*" Ranges.java > ranges.txt
 *
 * A line: topics (name:racks of partition 0/racks of partition 1/...), members (id:rack:topics), the shares of
 * RangeAssignor, and how many partitions the cooperative sticky assignor brings near.
 */
class Ranges {
    public static void main(String[] args) {
        Random random = new Random(881);
        for (int round = 0; round < 150; round++)
            one(random);
    }

    static void one(Random random) {
        int racks = 1 + random.nextInt(4);
        boolean same = random.nextBoolean();
        int size = random.nextInt(9);
        Map<String, List<PartitionInfo>> topics = new TreeMap<>();
        for (int t = 0; t < 1 + random.nextInt(4); t++) {
            List<PartitionInfo> parts = new ArrayList<>();
            for (int p = 0, n = same ? size : random.nextInt(9); p < n; p++) {
                TreeSet<Integer> nodes = new TreeSet<>();
                for (int copies = 1 + random.nextInt(2); nodes.size() < Math.min(copies, racks); )
                    nodes.add(random.nextInt(racks));
                Node[] replicas = nodes.stream().map(r -> new Node(r, "h", 1, "r" + r)).toArray(Node[]::new);
                parts.add(new PartitionInfo("t" + t, p, replicas[0], replicas, replicas));
            }
            topics.put("t" + t, parts);
        }
        Map<String, Subscription> members = new TreeMap<>();
        List<String> who = new ArrayList<>();
        boolean alike = random.nextBoolean();
        for (int m = 0; m < 1 + random.nextInt(5); m++) {
            List<String> wanted = topics.keySet().stream().filter(t -> alike || t.equals("t0") || random.nextInt(4) > 0)
                .collect(Collectors.toList());
            Optional<String> rack = random.nextInt(6) == 0 ? Optional.empty() : Optional.of("r" + random.nextInt(racks + 1));
            members.put("m" + m, new Subscription(wanted, null, List.of(), -1, rack));
            who.add("m" + m + ":" + rack.orElse("") + ":" + String.join(",", wanted));
        }
        topics.keySet().retainAll(members.values().stream().flatMap(m -> m.topics().stream()).collect(Collectors.toSet()));
        Map<String, List<TopicPartition>> shares = new TreeMap<>(new RangeAssignor().assignPartitions(topics, members));
        Map<String, List<TopicPartition>> sticky = new CooperativeStickyAssignor().assignPartitions(topics, members);
        long near = sticky.entrySet().stream().mapToLong(e -> e.getValue().stream().filter(tp ->
            members.get(e.getKey()).rackId().map(r -> Arrays.stream(topics.get(tp.topic()).get(tp.partition()).replicas())
                .anyMatch(n -> n.rack().equals(r))).orElse(true)).count()).sum();
        String told = topics.entrySet().stream().map(e -> e.getKey() + ":" + e.getValue().stream().map(p ->
            Arrays.stream(p.replicas()).map(Node::rack).collect(Collectors.joining(","))).collect(Collectors.joining("/")))
            .collect(Collectors.joining(" "));
        System.out.println(told + " | " + String.join(" ", who) + " | " + shares.entrySet().stream()
            .map(e -> e.getKey() + ":" + e.getValue().stream().map(TopicPartition::toString).collect(Collectors.joining(",")))
            .collect(Collectors.joining(" ")) + " | " + near);
    }
}
