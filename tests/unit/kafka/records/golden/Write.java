import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes the records of make.py's topics with the Java producer: java -cp LIBS Write.java BOOTSTRAP. */
public class Write {
    static final long TIME = 1_700_000_000_000L;

    static KafkaProducer<byte[], byte[]> producer(String servers, String codec, String transactionalId) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        config.put("compression.type", codec);
        config.put("linger.ms", 200);
        config.put("batch.size", 20_000);
        if (transactionalId != null) {
            config.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int number, String key, String value) {
        return new ProducerRecord<>(topic, 0, TIME + 7L * number, bytes(key), bytes(value));
    }

    static String value(int number) {
        return ("line " + number + " ").repeat(number % 40);
    }

    static void plain(String servers, String codec) {
        try (KafkaProducer<byte[], byte[]> producer = producer(servers, codec, null)) {
            for (int n = 0; n < 150; n++) {
                producer.send(record("java-" + codec, n, n % 3 == 0 ? null : "k" + n, value(n)));
            }
        }
    }

    static void headers(String servers) {
        try (KafkaProducer<byte[], byte[]> producer = producer(servers, "none", null)) {
            for (int n = 0; n < 12; n++) {
                ProducerRecord<byte[], byte[]> record =
                    record("java-headers", n, n % 2 == 0 ? null : "", n % 4 == 0 ? null : value(n));
                for (int h = 0; h < n % 4; h++) {
                    record.headers().add("name-" + h + "-\u00e9", h == 1 ? null : bytes("v".repeat(h * 70)));
                }
                producer.send(record);
            }
        }
    }

    static void appendTime(String servers) {
        try (KafkaProducer<byte[], byte[]> producer = producer(servers, "lz4", null)) {
            for (int n = 0; n < 20; n++) {
                producer.send(record("java-append-time", n, null, value(n)));
            }
        }
    }

    static void transactions(String servers) {
        try (KafkaProducer<byte[], byte[]> one = producer(servers, "zstd", "golden-1");
             KafkaProducer<byte[], byte[]> two = producer(servers, "none", "golden-2")) {
            one.initTransactions();
            two.initTransactions();
            for (int round = 0; round < 4; round++) {
                one.beginTransaction();
                two.beginTransaction();
                for (int n = 0; n < 5; n++) {
                    one.send(record("java-transactions", n, "one", (round % 2 == 0 ? "aborted " : "kept ") + n));
                    one.flush();
                    two.send(record("java-transactions", n, "two", (round == 3 ? "aborted " : "kept ") + n));
                    two.flush();
                }
                if (round % 2 == 0) one.abortTransaction(); else one.commitTransaction();
                if (round == 3) two.abortTransaction(); else two.commitTransaction();
            }
        }
    }

    static void compacted(String servers) {
        for (int batch = 0; batch < 6; batch++) {
            try (KafkaProducer<byte[], byte[]> producer = producer(servers, "gzip", null)) {
                for (int n = 0; n < 30; n++) {
                    String value = n % 10 == 0 && batch == 3 ? null : value(n);
                    producer.send(record("java-compacted", n, "k" + (n * (batch + 1)) % 40, value));
                }
            }
        }
    }

    public static void main(String[] args) {
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            plain(args[0], codec);
        }
        headers(args[0]);
        appendTime(args[0]);
        transactions(args[0]);
        compacted(args[0]);
    }
}
