import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;

import javax.security.auth.login.AppConfigurationEntry;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/**
 * Prints what Apache Kafka's clients read from sasl.jaas.config. A case is a line, the text in base64. Its answer is a
 * line: the module, and name and value of each option, each in base64 ("-": null), separated by blanks; or "refused".
 * The line "options" is answered by the names of all options that Java's consumer has.
 */
public class JavaJaas {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(line.equals("options") ? String.join(" ", ConsumerConfig.configNames()) : read(line));
        }
    }

    private static String read(String encoded) {
        String text = new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
        AppConfigurationEntry entry;
        try {
            Map<String, Object> options = Map.of(SaslConfigs.SASL_JAAS_CONFIG, new Password(text));
            entry = JaasContext.loadClientContext(options).configurationEntries().get(0);
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        List<String> parts = new ArrayList<>(List.of(encode(entry.getLoginModuleName())));
        for (Map.Entry<String, ?> option : entry.getOptions().entrySet()) {
            parts.add(encode(option.getKey()));
            parts.add(encode((String) option.getValue()));
        }
        return String.join(" ", parts);
    }

    private static String encode(String text) {
        return text == null ? "-" : "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
