"""Which workloads there are. Each runs until `world.is_over`, and survives whatever is done to the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from strandline.testkit.simulation.workloads.changing_configurations import change_configurations
from strandline.testkit.simulation.workloads.changing_topics import change_topics
from strandline.testkit.simulation.workloads.consuming import consume_all
from strandline.testkit.simulation.workloads.deleting_records import delete_records
from strandline.testkit.simulation.workloads.groups import read_in_groups
from strandline.testkit.simulation.workloads.kafka_consuming import consume_by_kafka
from strandline.testkit.simulation.workloads.kafka_groups import read_in_kafka_groups
from strandline.testkit.simulation.workloads.kafka_producing import produce_by_kafka
from strandline.testkit.simulation.workloads.kafka_watching import watch_end_offsets
from strandline.testkit.simulation.workloads.moving_partitions import move_partitions
from strandline.testkit.simulation.workloads.pressing import press
from strandline.testkit.simulation.workloads.producing import produce_to_all
from strandline.testkit.simulation.world import World

Workload = Callable[[World], Awaitable[None]]

ALWAYS: dict[str, Workload] = {"producing": produce_to_all, "consuming": consume_all}
"""Of every run."""
SOMETIMES: dict[str, Workload] = {
    "pressing": press,
    "groups": read_in_groups,
    "topics": change_topics,
    "deletions of records": delete_records,
    "moves": move_partitions,
    "configurations": change_configurations,
    "kafka producers": produce_by_kafka,
    "kafka consumers": consume_by_kafka,
    "kafka end offsets": watch_end_offsets,
    "kafka groups": read_in_kafka_groups,
}
"""A seed draws which of them it has."""
