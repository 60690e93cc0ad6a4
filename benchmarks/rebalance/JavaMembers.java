import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of one group, each Apache Kafka's own consumer in a thread. Usage: JavaMembers topic key=value... It prints
 * "ready", starts member N for each line "start N" of its input, and prints "took N 0,1", "gave N 0,1" and
 * "heard N 0,1" (partitions). It ends, without leaving the group, when its input ends.
 */
public class JavaMembers {
    public static void main(String[] arguments) throws Exception {
        Properties options = new Properties();
        for (String argument : List.of(arguments).subList(1, arguments.length)) {
            String[] parts = argument.split("=", 2);
            options.put(parts[0], parts[1]);
        }
        tell("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String number = line.substring("start ".length());
            Thread member = new Thread(() -> live(arguments[0], number, options));
            member.setDaemon(true);
            member.start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void live(String topic, String number, Properties options) {
        var consumer = new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tell("took", number, partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                tell("gave", number, partitions);
            }
        });
        while (true) {
            tell("heard", number, consumer.poll(Duration.ofSeconds(1)).partitions());
        }
    }

    private static void tell(String what, String number, Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            tell(what + " " + number + " "
                + partitions.stream().map(each -> String.valueOf(each.partition())).collect(Collectors.joining(",")));
        }
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
