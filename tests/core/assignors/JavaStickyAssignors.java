import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.common.TopicPartition;

/**
 * Prints what Apache Kafka's own sticky assignors assign. A case is a line:
 * assignor;topic=partitions,...;member|generation|topic,...|owned topic-partition,...|user data in hex;...
 * Its answer is a line: member:topic-partition,...;...
 * The answer to a line userdata;generation;topic-partition,... is the user data of such a member with "sticky".
 */
public class JavaStickyAssignors {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(";", -1);
            System.out.println(parts[0].equals("userdata") ? userData(parts) : answer(parts));
        }
    }

    private static String answer(String[] parts) {
        AbstractStickyAssignor assignor = parts[0].equals("sticky") ? new StickyAssignor() : new CooperativeStickyAssignor();
        Map<String, Integer> counts = new HashMap<>();
        for (String topic : list(parts[1])) {
            counts.put(topic.split("=")[0], Integer.parseInt(topic.split("=")[1]));
        }
        Map<String, Subscription> members = new HashMap<>();
        for (int i = 2; i < parts.length; i++) {
            String[] member = parts[i].split("\\|", -1);
            ByteBuffer userData = member[4].isEmpty() ? null : ByteBuffer.wrap(HexFormat.of().parseHex(member[4]));
            members.put(member[0], new Subscription(
                list(member[2]), userData, partitions(member[3]), Integer.parseInt(member[1]), Optional.empty()));
        }
        List<String> answers = new ArrayList<>();
        for (Map.Entry<String, List<TopicPartition>> one : new TreeMap<>(assignor.assign(counts, members)).entrySet()) {
            List<String> partitions = new ArrayList<>();
            for (TopicPartition partition : one.getValue()) {
                partitions.add(partition.toString());
            }
            answers.add(one.getKey() + ":" + String.join(",", partitions));
        }
        return String.join(";", answers);
    }

    private static String userData(String[] parts) {
        StickyAssignor assignor = new StickyAssignor();
        assignor.onAssignment(
            new Assignment(partitions(parts[2])),
            new ConsumerGroupMetadata("group", Integer.parseInt(parts[1]), "member", Optional.empty()));
        return HexFormat.of().formatHex(assignor.subscriptionUserData(Set.of()).array());
    }

    private static List<TopicPartition> partitions(String text) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String name : list(text)) {
            int dash = name.lastIndexOf('-');
            partitions.add(new TopicPartition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1))));
        }
        return partitions;
    }

    private static List<String> list(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }
}
