"""The coordinator with all that works for it, on one broker's replicas and a log that is real."""

from __future__ import annotations

import random
from collections.abc import Callable

import trio

from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.groups.handovers import Handovers
from strandline.broker.groups.letting_go import LettingGo
from strandline.broker.groups.members import Client
from strandline.broker.groups.shards import OFFSETS_TOPIC, Coordinated
from strandline.broker.replication.burst import Burst
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import CommittedOffset
from strandline.protocol.messages import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    UpdateMetadataPartitionState,
)
from strandline.protocol.types import TopicPartition
from support.replica_site import BROKER, Hand, ReplicaSite

SHARD = TopicPartition(OFFSETS_TOPIC, 0)
CONFIG = {
    "offsets.retention.check.interval.ms": "60000",
    "offsets.retention.minutes": "5",
    "group.initial.rebalance.delay.ms": "0",
}
CLIENT = Client("c", "/h")


def known_partition(index: int = 0, leader: int = BROKER) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(index, 1, leader, 0, [BROKER], 0, [BROKER])


class GroupBench:
    """A broker that coordinates all groups. `tasks` are to run. `between`: called at the end of each burst, where
    others may come in."""

    def __init__(self) -> None:
        self.site = ReplicaSite(config=CONFIG, topic={"min.insync.replicas": "1"})
        self.between: Callable[[], None] = lambda: None
        self.while_loading: Callable[[], None] = lambda: None
        data = self.site.data
        self.burst = Burst(
            self.site.environment.wall_clock, data.burst.changes, data.burst.write_appends, lambda: self.between()
        )
        self.coordinator = GroupCoordinator(
            self.site.replicas,
            data.group_log,
            self.burst,
            data.deadlines,
            random.Random(1),
            self.site.log,
        )
        letting_go = LettingGo(self.coordinator, self.site.replicas)
        handovers = Handovers(
            self.coordinator, self.site.replicas, data.group_loader.load, letting_go.look, self.site.log
        )
        self.tasks = (handovers.run, letting_go.run)
        self.site.update_metadata(known_partition(), topic=OFFSETS_TOPIC)

    async def lead(self, epoch: int = 0) -> None:
        """And wait until the groups are loaded."""
        alone = self.site.state(SHARD, isr=(BROKER,), replicas=(BROKER,), epoch=epoch)
        response = await self.site.order(alone, topic=OFFSETS_TOPIC)
        assert [error.error_code for error in response.partition_errors] == [0]
        assert self.coordinator.is_loading
        self.while_loading()
        with trio.fail_after(60):
            while self.coordinator.is_loading:
                await trio.sleep(1)

    async def lead_again(self) -> None:
        """Everything is loaded from the log once more."""
        self.site.replicas.resign(self.site.partition(SHARD))
        await self.lead(epoch=self.site.partition(SHARD).leader_epoch + 1)

    def group(self, name: str = "g") -> Coordinated:
        found = self.coordinator.find_or_make(name)
        assert isinstance(found, Coordinated)
        return found

    def commit(self, topics: dict[str, dict[int, int]], group: str = "g") -> list[ErrorCode]:
        codes: list[ErrorCode] = []
        now_ms = self.burst.wall_ms()
        offsets = {
            topic: {index: CommittedOffset(offset, -1, "", now_ms) for index, offset in partitions.items()}
            for topic, partitions in topics.items()
        }
        self.coordinator.commit(self.group(group), offsets, codes.append)
        return codes

    def committed(self, group: str = "g") -> dict[str, dict[int, int]]:
        found = self.coordinator.find(group)
        if not isinstance(found, Coordinated):
            return {}
        return {
            topic: {index: committed.offset for index, committed in partitions.items()}
            for topic, partitions in found.offsets.committed.items()
        }

    def join(self, name: str = "g") -> Coordinated:
        """A member joins, alone, and is given its assignment once this is committed."""
        found = self.group(name)
        asked = JoinGroupRequest(name, 60_000, "", "consumer", [JoinGroupRequestProtocol("range", b"")], -1, "i")
        found.group.join(asked, CLIENT, Hand(asked), "m", self.burst.now())
        self.coordinator.carry_out(found)
        found.group.expire(self.burst.now() + 0.001)
        self.coordinator.carry_out(found)
        sync = SyncGroupRequest(name, found.group.generation, "m", [], "i")
        found.group.sync(sync, Hand(sync), self.burst.now())
        self.coordinator.carry_out(found)
        return found
