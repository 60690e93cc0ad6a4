import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/**
 * Prints what Apache Kafka's own producer makes of keys. A key is a line of hexadecimal digits, a space and a number of
 * partitions. Its answer is a line: the key's hash, a space, its partition.
 */
public class JavaKeyPartitions {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            byte[] key = HexFormat.of().parseHex(parts[0]);
            int partition = BuiltInPartitioner.partitionForKey(key, Integer.parseInt(parts[1]));
            System.out.println(Utils.murmur2(key) + " " + partition);
        }
    }
}
