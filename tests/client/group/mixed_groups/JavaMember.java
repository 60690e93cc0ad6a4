import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A group member that is Apache Kafka's own consumer. Usage: JavaMember topic key=value... It prints, line by line, the
 * values that it read ("got ..."), the partitions that it holds ("holds topic-0 ..."), and whether what it got was
 * "committed" or "refused". It leaves the group when its standard input ends.
 */
public class JavaMember {
    private static boolean hasAny = false;  // records that it has returned, and not committed

    public static void main(String[] arguments) throws Exception {
        Properties options = new Properties();
        for (String argument : List.of(arguments).subList(1, arguments.length)) {
            String[] parts = argument.split("=", 2);
            options.put(parts[0], parts[1]);
        }
        AtomicBoolean leaving = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) {
                // the test is gone: leave too
            }
            leaving.set(true);
        });
        input.setDaemon(true);
        input.start();
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
        try (consumer) {
            consumer.subscribe(List.of(arguments[0]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    commit(consumer);  // a commit that was refused because of this rebalance
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
            });
            Set<String> told = null;
            while (!leaving.get()) {
                StringBuilder got = new StringBuilder("got");
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    got.append(' ').append(record.value());
                }
                if (got.length() > 3) {
                    System.out.println(got);
                    hasAny = true;
                }
                Set<String> held = names(consumer.assignment());
                if (!held.equals(told)) {
                    System.out.println("holds " + String.join(" ", held));
                    told = held;
                }
                System.out.flush();
                commit(consumer);
            }
        }
    }

    private static void commit(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
            if (hasAny) {
                System.out.println("committed");
                hasAny = false;
            }
        } catch (RebalanceInProgressException again) {
            // It has all its partitions still: the next commit, before any is revoked, has these records, too.
        } catch (CommitFailedException lost) {
            System.out.println("refused");  // the member that has the partitions now reads these again
            hasAny = false;
        }
        System.out.flush();
    }

    private static Set<String> names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).collect(Collectors.toCollection(TreeSet::new));
    }
}
