// Storm's own word count from Kafka, every tuple tracked and acked, in one JVM (LocalCluster): the peer of
// tests/benchmarks/topology_word_count.py. Ends when every record was acked, and writes what it counted. Under live load
// it ends after some seconds, and writes when each record was acked: pairs of offset and seconds, little-endian doubles.

import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.kafka.spout.KafkaSpoutMessageId;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

public class WordCount {
    static final List<Map<String, Integer>> COUNTS = new CopyOnWriteArrayList<>();
    static final AtomicLong FIRST = new AtomicLong();
    static final AtomicLong LAST = new AtomicLong();
    static final AtomicLong ACKED = new AtomicLong();
    static final CountDownLatch DONE = new CountDownLatch(1);
    static final List<double[]> ACKED_AT = Collections.synchronizedList(new ArrayList<>());
    static boolean live;
    static long lines;

    static class CountedSpout extends KafkaSpout<String, String> {
        CountedSpout(KafkaSpoutConfig<String, String> config) {
            super(config);
        }

        @Override
        public void ack(Object messageId) {
            super.ack(messageId);
            if (live) {
                double now = System.currentTimeMillis() / 1000.0;
                ACKED_AT.add(new double[] {((KafkaSpoutMessageId) messageId).offset(), now});
            } else if (ACKED.incrementAndGet() == lines) {
                LAST.set(System.currentTimeMillis());
                DONE.countDown();
            }
        }
    }

    static class Split extends BaseBasicBolt {
        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            for (String word : tuple.getStringByField("value").split(" ")) {
                collector.emit(new Values(word));
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word"));
        }
    }

    static class Count extends BaseBasicBolt {
        private transient Map<String, Integer> counts;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context) {
            counts = new HashMap<>();
            COUNTS.add(counts);
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            counts.merge(tuple.getString(0), 1, Integer::sum);
            if (FIRST.get() == 0) {
                FIRST.compareAndSet(0, System.currentTimeMillis());
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
        }
    }

    static void writeTimes(Path out) throws Exception {
        double[][] rows = ACKED_AT.toArray(new double[0][]);
        ByteBuffer bytes = ByteBuffer.allocate(16 * rows.length).order(ByteOrder.LITTLE_ENDIAN);
        for (double[] row : rows) {
            bytes.putDouble(row[0]).putDouble(row[1]);
        }
        Files.write(out, bytes.array());
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[1];
        live = args[2].equals("live");
        lines = live ? 0 : Long.parseLong(args[2]);
        Path out = Path.of(args[3]);
        KafkaSpoutConfig<String, String> spout = KafkaSpoutConfig.builder(bootstrap, topic)
            .setProp("group.id", args[4])
            .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.EARLIEST)
            .setProcessingGuarantee(KafkaSpoutConfig.ProcessingGuarantee.AT_LEAST_ONCE)
            .build();
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("lines", new CountedSpout(spout), 1);
        builder.setBolt("split", new Split(), 2).shuffleGrouping("lines");
        builder.setBolt("count", new Count(), 2).fieldsGrouping("split", new Fields("word"));
        Config config = new Config();
        config.setMaxSpoutPending(5000);
        config.setNumAckers(1);
        config.setMessageTimeoutSecs(120);
        try (LocalCluster cluster = new LocalCluster();
             LocalCluster.LocalTopology running = cluster.submitTopology("count", config, builder.createTopology())) {
            if (live) {
                Thread.sleep((long) (1000 * Double.parseDouble(args[5])));
                writeTimes(out);
                System.exit(0);
            }
            DONE.await();
        }
        Map<String, Integer> total = new HashMap<>();
        for (Map<String, Integer> counts : COUNTS) {
            counts.forEach((word, count) -> total.merge(word, count, Integer::sum));
        }
        try (PrintWriter file = new PrintWriter(Files.newBufferedWriter(out))) {
            file.printf("{\"first\": %f, \"last\": %f, \"counts\": {", FIRST.get() / 1000.0, LAST.get() / 1000.0);
            String comma = "";
            for (Map.Entry<String, Integer> entry : total.entrySet()) {
                file.printf("%s\"%s\": %d", comma, entry.getKey(), entry.getValue());
                comma = ", ";
            }
            file.print("}}");
        }
        System.exit(0);
    }
}
