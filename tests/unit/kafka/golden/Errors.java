import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints Java's table of errors, as errors.txt has it: java -cp "KAFKA_4_JARS/*" Errors.java > errors.txt */
class ErrorTable {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            boolean stale = error.exception() instanceof InvalidMetadataException;
            System.out.println(error.code() + " " + error.name() + " " + retriable + " " + stale);
        }
    }
}
