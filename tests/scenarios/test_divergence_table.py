"""Where two logs part ways, as a table (KIP-279).

What the follower asks and the leader answers goes to and fro until they agree. The follower must end at the last offset
that both share: no higher, or the logs differ for ever, and no lower, or it drops what may be committed.

A log is written as its epochs: `((0, 10), (2, 15))` has records 0–9 of epoch 0 and 10–14 of epoch 2.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.replication.partition import Partition
from strandline.protocol.messages import LeaderAndIsrPartitionState
from strandline.protocol.records import build_batch, validate_produced
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import topic_config
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import SeededRandom
from strandline.testkit.inspection import epochs
from support.replicas import PARTITION, TOPIC_ID

LEADER, FOLLOWER = 1, 2
Epochs = tuple[tuple[int, int], ...]


class NoClock:
    def now_ms(self) -> int:
        return 0


def a_log(history: Epochs) -> Log:
    config = topic_config(load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:1"}), {})
    logs = LogManager(
        MemoryDisk(),
        ["/data"],
        broker_id=1,
        topic_config_for=lambda _: config,
        wall_clock=NoClock(),
        random=SeededRandom(0)("storage"),
    )
    logs.load()
    log = logs.create(PARTITION, TOPIC_ID, config)
    for epoch, end in history:
        while log.log_end_offset < end:
            batch = bytearray(build_batch([(0, None, b"%d of %d" % (log.log_end_offset, epoch))]))
            log.append_as_leader(validate_produced(memoryview(batch), max_batch_bytes=10**6), epoch)
    return log


def a_partition(broker_id: int, history: Epochs, high_watermark: int, leader_epoch: int) -> Partition:
    config = topic_config(load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:1"}), {})
    partition = Partition(
        broker_id,
        PARTITION,
        TOPIC_ID,
        a_log(history),
        config,
        high_watermark,
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


def converge(leader: Partition, follower: Partition) -> tuple[int, int]:
    """(where the follower's log ends before it appends anything, how many answers it took)."""
    for steps in range(20):
        log = follower.log
        diverging = leader.diverging_epoch(log.last_epoch, log.log_end_offset)
        if diverging is None:
            return log.log_end_offset, steps
        before = log.log_end_offset
        follower.truncate_to_divergence(diverging, 0)
        assert log.log_end_offset < before, "an answer that cuts nothing would be given for ever"
    raise AssertionError("they do not come to an end")


@pytest.mark.parametrize(
    ("leads", "leaders", "followers", "expected", "steps"),
    [
        pytest.param(1, ((0, 10),), ((0, 5),), 5, 0, id="A: behind"),
        pytest.param(1, ((0, 10),), ((0, 15),), 10, 1, id="B: ahead in the same epoch"),
        pytest.param(3, ((0, 10), (3, 12)), ((0, 5), (2, 15)), 5, 1, id="C: ahead in an epoch that the leader lacks"),
        pytest.param(3, ((0, 5), (1, 10)), ((0, 5), (2, 12)), 5, 1, id="D: a fork"),
        pytest.param(3, ((0, 5), (1, 10)), ((0, 5), (1, 7), (2, 12)), 7, 1, id="E: a fork inside an epoch of both"),
        pytest.param(5, ((0, 3), (2, 8), (4, 9)), ((0, 3), (1, 6), (3, 10)), 3, 2, id="F: forks one upon another"),
        pytest.param(3, ((2, 8),), ((1, 5),), 0, 1, id="G: no epoch in common"),
    ],
)
def test_r3_a_follower_is_cut_where_the_logs_part_ways(
    leads: int, leaders: Epochs, followers: Epochs, expected: int, steps: int
) -> None:
    leader = a_partition(LEADER, leaders, high_watermark=0, leader_epoch=leads)
    follower = a_partition(FOLLOWER, followers, high_watermark=0, leader_epoch=leads)
    assert converge(leader, follower) == (expected, steps)


def common_prefix(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@st.composite
def two_histories(draw: st.DrawFn) -> tuple[Epochs, Epochs]:
    """Two logs that elections could leave: each epoch has one leader, so it begins at the same offset wherever it
    stands, and its log up to there is that leader's."""
    logs: list[list[int]] = [[], []]
    for epoch in range(draw(st.integers(1, 6))):
        leads = draw(st.integers(0, 1))
        logs[leads].extend([epoch] * draw(st.integers(0, 4)))
        if draw(st.booleans()):  # the other one follows it for a while
            shared = common_prefix(*logs)
            end = draw(st.integers(shared, len(logs[leads])))
            logs[1 - leads] = logs[leads][:end]
    return as_epochs(logs[0]), as_epochs(logs[1])


def as_epochs(log: list[int]) -> Epochs:
    ends = {epoch: at + 1 for at, epoch in enumerate(log)}
    return tuple(ends.items())


@given(two_histories())
def test_r3_any_two_logs_that_elections_could_leave_end_where_they_part(
    histories: tuple[Epochs, Epochs],
) -> None:
    leader = a_partition(LEADER, histories[0], high_watermark=0, leader_epoch=10)
    follower = a_partition(FOLLOWER, histories[1], high_watermark=0, leader_epoch=10)
    expected = common_prefix(epochs(leader.log), epochs(follower.log))
    end, _ = converge(leader, follower)
    assert end == expected
