import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Prints what Apache Kafka's own assignors assign. A case is a line,
 * assignor;topic=replica+replica/replica/...,...;member|instance|topic,...|rack;...
 * where each partition is a list of the racks of its replicas ("-": none). Its answer is a line:
 * member:topic-partition,...;...
 */
public class JavaAssignors {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(";", -1)));
        }
    }

    private static String answer(String[] parts) {
        ConsumerPartitionAssignor assignor = parts[0].equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
        Map<String, ConsumerPartitionAssignor.Subscription> members = new HashMap<>();
        for (int i = 2; i < parts.length; i++) {
            String[] member = parts[i].split("\\|", -1);
            ConsumerPartitionAssignor.Subscription subscription =
                new ConsumerPartitionAssignor.Subscription(list(member[2]), (ByteBuffer) null, List.of(), -1,
                    member[3].isEmpty() ? Optional.empty() : Optional.of(member[3]));
            if (!member[1].isEmpty()) {
                subscription.setGroupInstanceId(Optional.of(member[1]));
            }
            members.put(member[0], subscription);
        }
        Map<String, ConsumerPartitionAssignor.Assignment> assigned = assignor
            .assign(cluster(list(parts[1])), new ConsumerPartitionAssignor.GroupSubscription(members)).groupAssignment();
        List<String> answers = new ArrayList<>();
        for (Map.Entry<String, ConsumerPartitionAssignor.Assignment> one : new TreeMap<>(assigned).entrySet()) {
            List<String> partitions = new ArrayList<>();
            for (TopicPartition partition : one.getValue().partitions()) {
                partitions.add(partition.toString());
            }
            answers.add(one.getKey() + ":" + String.join(",", partitions));
        }
        return String.join(";", answers);
    }

    private static Cluster cluster(List<String> topics) {
        Map<String, Node> brokers = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : topics) {
            String[] parts = topic.split("=");
            String[] replicas = parts[1].split("/");
            for (int i = 0; i < replicas.length; i++) {
                List<Node> nodes = new ArrayList<>();
                for (String rack : replicas[i].split("\\+")) {
                    brokers.computeIfAbsent(rack, r -> new Node(brokers.size(), "h", 9092, r.equals("-") ? null : r));
                    nodes.add(brokers.get(rack));
                }
                Node[] all = nodes.toArray(new Node[0]);
                partitions.add(new PartitionInfo(parts[0], i, all[0], all, all));
            }
        }
        return new Cluster("c", brokers.values(), partitions, Collections.emptySet(), Collections.emptySet());
    }

    private static List<String> list(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }
}
