"""What logs on the disk in memory cost: all tests and the simulator stand on it, and a cluster in it may have many.

    python tests/benchmarks/memory_disk.py [--logs 10000]

Logs are created, filled with a batch each, killed and loaded again: CPU time for each log, for a tenth of them and for
all. It should be the same. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from strandline.protocol.types import TopicPartition
from support.storage_site import TOPIC_ID, StorageSite, fill


def measured(logs: int) -> tuple[float, float]:
    """CPU seconds: to create and fill them; to load them after a kill."""
    site = StorageSite()
    manager = site.start()
    began_s = time.process_time()
    for number in range(logs):
        fill(manager.create(TopicPartition("t", number), TOPIC_ID), 1)
    filled_s = time.process_time()
    site.disk.kill()
    assert len(site.start().logs) == logs
    return filled_s - began_s, time.process_time() - filled_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=10_000)
    logs = parser.parse_args().logs
    for count in (logs // 10, logs):
        created_s, loaded_s = measured(count)
        each = f"{created_s / count * 1e3:.2f} ms and {loaded_s / count * 1e3:.2f} ms a log"
        print(f"{count:,} logs: created and filled in {created_s:.1f} s, loaded in {loaded_s:.1f} s of CPU: {each}")


if __name__ == "__main__":
    main()
