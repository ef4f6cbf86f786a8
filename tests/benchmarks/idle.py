"""`make bench-idle`: what three brokers cost together while nobody uses them, by how many partitions lie there.

One topic of so many partitions, with three replicas each, gets one record per partition, then nothing happens. The CPU
time of the three broker processes is read from the kernel's clock of each; ZooKeeper's is not counted.

    python tests/benchmarks/idle.py [--partitions 12 --partitions 1000 --partitions 5000] [--seconds 20]

Prints a line per case: % of one core, of all three brokers together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from strandline import Admin, Producer
from strandline.cli.cluster import EmbeddedCluster

BROKERS = 3
CPUCLOCK_SCHED = 2
"""Linux: the clock of another process has its inverted id, and this kind of time in the last three bits."""
CASES = (12, 1000, 5000)
PARTITIONS_PER_TOPIC = 1000
SETTLE_S = 15.0
"""After the last record: checkpoints of new logs are written, page faults of the start are over."""


def cpu_seconds(cluster: EmbeddedCluster) -> float:
    """Of all brokers since their start, with all their threads, also those that ended."""
    pids = [daemon.id.pid for daemon in cluster.brokers.values() if daemon.id is not None]
    return sum(time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) for pid in pids)


def fill(cluster: EmbeddedCluster, partitions: int) -> None:
    """Make the topics, and write a record to each partition."""
    admin = Admin(bootstrap_servers=cluster.bootstrap_servers)
    topics = {}
    for first in range(0, partitions, PARTITIONS_PER_TOPIC):
        count = min(PARTITIONS_PER_TOPIC, partitions - first)
        topics[f"idle-{first}"] = count
        admin.create_topic(f"idle-{first}", num_partitions=count, replication_factor=BROKERS)
    admin.close()
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for topic, count in topics.items():
            for partition in range(count):
                producer.send(topic, b"idle", partition=partition)
        producer.flush()


def measure(partitions: int, seconds: float) -> float:
    """% of one core."""
    with (
        tempfile.TemporaryDirectory(prefix="strandline-idle-") as folder,
        EmbeddedCluster(Path(folder), brokers=BROKERS, base_port=None) as cluster,
    ):
        fill(cluster, partitions)
        time.sleep(SETTLE_S)
        before, began = cpu_seconds(cluster), time.monotonic()
        time.sleep(seconds)
        return (cpu_seconds(cluster) - before) / (time.monotonic() - began) * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, action="append", help="only these cases")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured part of each case")
    arguments = parser.parse_args()
    for partitions in arguments.partitions or CASES:
        percent = measure(partitions, arguments.seconds)
        print(f"{partitions:>6} idle partitions: {percent:5.1f} % of a core", flush=True)


if __name__ == "__main__":
    main()
