"""Whether everybody in a cluster in memory knows what ZooKeeper has: L2 of the promises that hold at rest."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import ControllerZnode
from strandline.testkit.cluster import MemoryCluster


def disagreements(
    cluster: MemoryCluster, layout: Mapping[TopicPartition, Sequence[int]], untold: Container[TopicPartition] = ()
) -> Iterator[str]:
    """What brokers believe of controller, brokers, topics and roles that is not so. layout: the replicas of all
    partitions that there are, preferred first. untold: of these brokers hear with their next leader only."""
    yield from _of_controllers(cluster)
    known = {tp: cluster.state(tp) for tp in layout}
    topics = {tp.topic for tp in layout}
    for broker_id, node in cluster.nodes.items():
        data = getattr(node.broker, "data", None)
        if not node.is_up or data is None:  # others may be done long before it has started
            yield f"broker {broker_id} does not serve"
            continue
        cache = data.metadata
        if cache.controller_id != cluster.controller_id:
            yield f"broker {broker_id} takes {cache.controller_id} for the controller"
        if set(cache.topics) != topics or cache.unfinished_deletions or set(cache.brokers) != set(cluster.nodes):
            yield f"broker {broker_id} knows topics {sorted(cache.topics)} and brokers {sorted(cache.brokers)}"
            continue
        for tp, assigned in layout.items():
            if tp in untold:
                continue
            state, believed = known[tp], cache.topics[tp.topic].partitions.get(tp.partition)
            if (
                believed is None
                or (believed.leader, believed.leader_epoch) != (state.leader, state.leader_epoch)
                or (sorted(believed.isr), believed.replicas) != (sorted(state.isr), list(assigned))
                or believed.offline_replicas
                or believed.refused_replicas
            ):
                yield f"broker {broker_id} believes of {tp}: {believed}"
            if cluster.hosts(broker_id, tp) != (broker_id in assigned):
                yield f"broker {broker_id} hosts {tp}: {cluster.hosts(broker_id, tp)}"
            elif cluster.leads(broker_id, tp) != (broker_id == state.leader):
                yield f"broker {broker_id} leads {tp}: {cluster.leads(broker_id, tp)}, and not {state.leader}"
            elif broker_id in assigned and cluster.partition(broker_id, tp).leader_epoch != state.leader_epoch:
                yield f"broker {broker_id} is behind in the epoch of {tp}"


def _of_controllers(cluster: MemoryCluster) -> Iterator[str]:
    """One broker acts as controller, and it is the one that ZooKeeper has."""
    tree, path = cluster.zookeeper.tree, ControllerZnode.PATH
    elected = ControllerZnode.decode(path, tree.get(path).data).broker_id if tree.exists(path) else NO_BROKER
    acting = cluster.acting_controllers()
    if acting != [elected]:
        yield f"controller is {elected if elected != NO_BROKER else 'nobody'}, and {acting} act as that"
