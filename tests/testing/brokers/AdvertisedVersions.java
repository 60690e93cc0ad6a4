import java.lang.reflect.Method;
import org.apache.kafka.common.protocol.ApiKeys;

/** Prints key, first and last stable version of every API that the kafka-clients jar on the class path knows. */
public class AdvertisedVersions {
    public static void main(String[] arguments) throws Exception {
        for (ApiKeys api : ApiKeys.values()) {
            short last = api.latestVersion();
            try { // newer releases have versions that only brokers with unstable ones enabled advertise
                Method latest = ApiKeys.class.getMethod("latestVersion", boolean.class);
                last = (Short) latest.invoke(api, false);
            } catch (NoSuchMethodException tooOld) {
            }
            System.out.println(api.id + " " + api.oldestVersion() + " " + last);
        }
    }
}
