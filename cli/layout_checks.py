"""The checks of `cluster_checks` that look at where partitions lie, and who leads them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from strandline.cli.cluster_facts import ClusterFacts
from strandline.cli.wording import counted
from strandline.protocol.types import NO_BROKER, TopicPartition

if TYPE_CHECKING:
    from strandline.client.metadata import PartitionView

IMBALANCE = 0.1
"""leader.imbalance.per.broker.percentage, by default."""


def each_partition(facts: ClusterFacts) -> Iterator[tuple[TopicPartition, PartitionView]]:
    for name, topic in sorted(facts.topics.items()):
        for number, view in sorted(topic.partitions.items()):
            yield TopicPartition(name, number), view


def leaders(facts: ClusterFacts) -> str:
    """Kafka's rule: of what a broker is preferred for, so much is led by others though it is in sync. What nobody leads
    is another fault, and a broker that does not run cannot be elected."""
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for _, view in each_partition(facts):
        may_lead = view.replicas and view.replicas[0] in view.in_sync_replicas and view.replicas[0] in facts.brokers
        if may_lead and view.leader != NO_BROKER:
            preferred[view.replicas[0]] += 1
            elsewhere[view.replicas[0]] += view.leader != view.replicas[0]
    return ", ".join(
        f"{elsewhere[each]} of {count} that prefer broker {each} are led by others"
        for each, count in sorted(preferred.items())
        if elsewhere[each] > IMBALANCE * count
    )


def spread(facts: ClusterFacts) -> str:
    """A difference of two is what no plan can avoid."""
    held = Counter(each for _, view in each_partition(facts) for each in view.replicas)
    counts = {each: held[each] for each in sorted(facts.brokers)}
    if not counts:
        return ""
    most, least = max(counts, key=lambda each: counts[each]), min(counts, key=lambda each: counts[each])
    if counts[most] - counts[least] <= max(2, 0.2 * counts[most]):
        return ""
    return f"broker {most} has {counted(counts[most], 'replica')}, broker {least} {counts[least]}"
