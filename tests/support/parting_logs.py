"""Two logs of which one follows the other, by the epochs they are made of, and where they come together.

A log is written as its epochs: `((0, 10), (2, 15))` has records 0–9 of epoch 0 and 10–14 of epoch 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from strandline.broker.replication.partition import Partition
from strandline.protocol.messages import LeaderAndIsrPartitionState
from strandline.protocol.records import build_batch, validate_produced
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import TopicConfig, topic_config
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import SeededRandom
from support.replicas import PARTITION, TOPIC_ID

LEADER, FOLLOWER = 1, 2
Epochs = tuple[tuple[int, int], ...]


class Answer(NamedTuple):
    """One answer of the leader that says where the logs part. The follower asked by its last epoch and its end, and
    was cut to `cut_to`."""

    asked_epoch: int
    asked_end: int
    epoch: int
    end_offset: int
    cut_to: int


class _NoClock:
    def now_ms(self) -> int:
        return 0


def a_partition(broker_id: int, history: Epochs, leader_epoch: int) -> Partition:
    """The replica of the leader or the follower, in an epoch that has just begun."""
    config = topic_config(load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:1"}), {})
    partition = Partition(
        broker_id,
        PARTITION,
        TOPIC_ID,
        _a_log(history, config),
        config,
        0,
        propose=lambda _, __: None,
        is_in_sync_candidate=lambda _: True,
        maybe_lagging={},
    )
    state = LeaderAndIsrPartitionState(0, 1, LEADER, leader_epoch, [LEADER, FOLLOWER], 0, [LEADER, FOLLOWER])
    if broker_id == LEADER:
        partition.become_leader(state, 30.0, 0.0)
    else:
        partition.become_follower(state)
    return partition


def _a_log(history: Epochs, config: TopicConfig) -> Log:
    logs = LogManager(
        MemoryDisk(),
        ["/data"],
        broker_id=1,
        topic_config_for=lambda _: config,
        wall_clock=_NoClock(),
        random=SeededRandom(0)("storage"),
    )
    logs.load()
    log = logs.create(PARTITION, TOPIC_ID, config)
    for epoch, end in history:
        while log.log_end_offset < end:
            batch = bytearray(build_batch([(0, None, b"%d of %d" % (log.log_end_offset, epoch))]))
            log.append_as_leader(validate_produced(memoryview(batch), max_batch_bytes=10**6), epoch)
    return log


def converge(leader: Partition, follower: Partition) -> Iterator[Answer]:
    """What the leader answers until they agree. An answer that cuts nothing would be given for ever."""
    log = follower.log
    while (diverging := leader.diverging_epoch(log.last_epoch, log.log_end_offset)) is not None:
        asked_epoch, before = log.last_epoch, log.log_end_offset
        follower.truncate_to_divergence(diverging, 0)
        assert log.log_end_offset < before, "the answer cuts nothing"
        yield Answer(asked_epoch, before, diverging.epoch, diverging.end_offset, log.log_end_offset)
