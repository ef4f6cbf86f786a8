// Kafka's own assignors, for test_assignors.py: a group per line in, what its members get out.
//
//   in:   assignor TAB topic=count,… TAB member=instance or -=subscription in hexadecimal,…
//   out:  member=assignment in hexadecimal,…

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

public class Assignments {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            Map<String, ConsumerPartitionAssignor.Subscription> members = new HashMap<>();
            for (String member : fields[2].split(",")) {
                String[] parts = member.split("=", -1);
                ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
                ConsumerPartitionAssignor.Subscription said = ConsumerProtocol.deserializeSubscription(data);
                said.setGroupInstanceId(parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]));
                members.put(parts[0], said);
            }
            ConsumerPartitionAssignor.GroupSubscription group = new ConsumerPartitionAssignor.GroupSubscription(members);
            List<String> given = new ArrayList<>();
            assignor(fields[0]).assign(cluster(fields[1]), group).groupAssignment().forEach((member, assignment) -> {
                ByteBuffer data = ConsumerProtocol.serializeAssignment(assignment);
                byte[] bytes = new byte[data.remaining()];
                data.get(bytes);
                given.add(member + "=" + HexFormat.of().formatHex(bytes));
            });
            System.out.println(String.join(",", given));
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range":
                return new RangeAssignor();
            case "roundrobin":
                return new RoundRobinAssignor();
            case "sticky":
                return new StickyAssignor();
            default:
                return new CooperativeStickyAssignor();
        }
    }

    private static Cluster cluster(String topics) {
        Node[] nowhere = new Node[0];
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : topics.split(",")) {
            String[] parts = topic.split("=");
            for (int number = 0; number < Integer.parseInt(parts[1]); number++) {
                partitions.add(new PartitionInfo(parts[0], number, null, nowhere, nowhere));
            }
        }
        return new Cluster("cluster", List.of(), partitions, Set.of(), Set.of());
    }
}
