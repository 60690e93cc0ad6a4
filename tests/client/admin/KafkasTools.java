import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.Exit;

/** A member of a group of the consumer protocol, one of a share group, and Kafka's own tools, in one JVM.
 *
 *  Each line of standard input is the class of a tool and its arguments, with tabs between; its output comes back, and
 *  a line with END and the exit code. The members leave at the end of the input.
 */
class KafkasTools {
    static final PrintStream OUT = System.out;
    static Integer exitCode;

    static Map<String, Object> options(String bootstrap, String group, String client) {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", bootstrap);
        options.put("group.id", group);
        options.put("client.id", client);
        options.put("key.deserializer", ByteArrayDeserializer.class);
        options.put("value.deserializer", ByteArrayDeserializer.class);
        return options;
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1], group = args[2], shared = args[3];
        Exit.setExitProcedure((code, message) -> {
            if (exitCode == null) {
                exitCode = code; // a tool that catches what is thrown here exits again, with 1
            }
            throw new Ended();
        });
        Map<String, Object> consumer = options(bootstrap, group, "java-consumer");
        consumer.put("group.protocol", "consumer");
        consumer.put("auto.offset.reset", "earliest");
        consumer.put("enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> member = new KafkaConsumer<>(consumer);
                KafkaShareConsumer<byte[], byte[]> sharing =
                    new KafkaShareConsumer<>(options(bootstrap, shared, "java-share"))) {
            member.subscribe(List.of(topic));
            sharing.subscribe(List.of(topic));
            while (member.assignment().isEmpty()) {
                member.poll(Duration.ofMillis(100));
            }
            member.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
            sharing.poll(Duration.ofMillis(100));
            OUT.println("READY");
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split("\t");
                run(words[0], Arrays.copyOfRange(words, 1, words.length));
            }
        }
    }

    static void run(String tool, String[] arguments) throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
        exitCode = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                throw error;
            }
        }
        OUT.print(said.toString(StandardCharsets.UTF_8));
        OUT.println("\nEND " + (exitCode == null ? 0 : exitCode));
        OUT.flush();
    }

    static class Ended extends RuntimeException {}
}
