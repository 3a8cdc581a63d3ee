import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Encodes messages by Kafka's own classes: lines of {"message", "version", "values"} in, lines of hex out. */
class Encode {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode row = mapper.readTree(line);
            short version = (short) row.get("version").asInt();
            String name = "org.apache.kafka.common.message." + row.get("message").asText() + "Data";
            Object data = Class.forName(name + "JsonConverter")
                    .getMethod("read", JsonNode.class, short.class)
                    .invoke(null, row.get("values"), version);
            StringBuilder out = new StringBuilder();
            for (byte one : MessageUtil.toByteBufferAccessor((Message) data, version).buffer().array()) {
                out.append(String.format("%02x", one));
            }
            System.out.println(out);
        }
    }
}
