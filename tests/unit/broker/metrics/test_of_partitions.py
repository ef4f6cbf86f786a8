"""Partitions by kafka_exporter's names: each is told once in a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from trio.testing import MockClock

from strandline.broker.metrics.of_controller import Leaderless
from strandline.broker.metrics.of_partitions import OfPartitions
from strandline.protocol.messages import UpdateMetadataPartitionState
from strandline.protocol.types import NO_BROKER
from support.replica_site import REPLICAS, T0, T1, ReplicaSite


def told(site: ReplicaSite, leaderless: Sequence[Leaderless] = ()) -> dict[tuple[str, str], float]:
    """Family without its prefix, and partition → figure."""
    source = OfPartitions(site.replicas, lambda: leaderless, lambda: True)
    samples = [sample for family in source() for sample in family.samples]
    found = {(s.name.removeprefix("kafka_topic_partition_"), s.labels["partition"]): s.value for s in samples}
    assert len(found) == len(samples), "none stands twice"
    return found


def known(site: ReplicaSite, leader: int, epoch: int) -> None:
    """The controller tells of T0."""
    site.update_metadata(UpdateMetadataPartitionState(0, 1, leader, epoch, list(REPLICAS), 1, list(REPLICAS)))


async def test_who_was_told_of_a_later_epoch_tells_nothing_of_what_it_led(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    known(site, 1, 0)
    assert told(site)["leader", "0"] == 1
    known(site, NO_BROKER, 1)  # the order to lead no more is still on its way
    assert told(site) == {}


async def test_what_the_controller_found_without_a_leader_and_leads_itself_by_now_is_told_once(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    found = told(site, [Leaderless(T0, 3, 2), Leaderless(T1, 3, 2)])
    assert {partition: value for (name, partition), value in found.items() if name == "leader"} == {"0": 1, "1": -1}
    assert {name: value for (name, partition), value in found.items() if partition == "1"} == {
        "leader": -1,
        "leader_is_preferred": 0,
        "replicas": 3,
        "in_sync_replica": 2,
        "under_replicated_partition": 1,
    }
