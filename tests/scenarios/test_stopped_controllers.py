"""The controller is stopped between any two of its steps (`support/controller_stops.py`), and another one, or the same
in a later term, ends what was begun: the state that was asked for, nothing lost, nothing left over (33 to 36).

A change that the controller learns is one more row of `CHANGES`. `make test` plays a sample, `make soak` everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import trio
import trio._core._run
from trio.testing import MockClock

from strandline.client import NewTopic
from strandline.client.topic_changes import CreatedTopic
from strandline.controller import store
from strandline.controller.orders import broker_orders
from strandline.controller.partitions import preferred_elections
from strandline.controller.reassignments import reassignments
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import DeleteTopicZnode, PreferredReplicaElectionZnode, TopicZnode
from support.controller_changes import T0, Change, Stage, play
from support.controller_moves import MOVES
from support.controller_stops import Step, Stop, Way
from support.sampling import sampled
from support.scenario import die

ONE_IN = 37
"""Stops that `make test` plays. It shares no factor with how they are counted, so that all kinds of steps are hit."""
A, B = [[1, 2, 3], [2, 3, 1], [3, 1, 2]], [[3, 2, 1], [1, 2, 3]]
ELSEWHERE = {TopicPartition("a", p): 2 for p in range(3)}

MOVED = {T0: [4, 2, 3], TopicPartition("a", 0): [4, 3], TopicPartition("a", 1): [3], TopicPartition("a", 2): [1, 2, 4]}
SENT_AWAY = {T0: [4, 1], TopicPartition("a", 0): [4, 2], TopicPartition("a", 1): [4], TopicPartition("a", 2): [4, 3]}
BEFORE, AFTER = {"a": [[1, 2], [2, 3], [1, 2]]}, {"a": [[4, 3], [3], [1, 2, 4]], T0.topic: [[4, 2, 3]]}


async def create(stage: Stage) -> None:
    async def ask(admin: object) -> bool:
        topics = [NewTopic(name, assignments=dict(enumerate(replicas))) for name, replicas in (("a", A), ("b", B))]
        results = await stage.admin.create_topics(topics, timeout_ms=5_000)
        known = ErrorCode.TOPIC_ALREADY_EXISTS
        return all(isinstance(each, CreatedTopic) or each.code == known for each in results.values())

    await stage.insist(ask)


async def delete(stage: Stage) -> None:
    tree = stage.cluster.zookeeper.tree

    async def ask(admin: object) -> bool:
        await stage.admin.delete_topics(["a", "b"], timeout_ms=3_000)
        return all(
            tree.exists(TopicZnode.path(name)) is None or tree.exists(DeleteTopicZnode.path(name)) is not None
            for name in ("a", "b")
        )

    await stage.insist(ask)


async def broker_3_dies(stage: Stage) -> None:
    die(stage.cluster, 3)
    await stage.until(lambda: stage.cluster.isr(T0) == [1, 2])


async def delete_and_bring_back(stage: Stage) -> None:
    await delete(stage)
    await trio.sleep(1)
    await stage.cluster.start_broker(3)


async def grow(stage: Stage) -> None:
    async def ask(admin: object) -> bool:
        known = TopicZnode.decode("a", stage.cluster.zookeeper.tree.get(TopicZnode.path("a")).data)
        if len(known.partitions) < 3:
            await stage.admin.create_partitions("a", 3, assignments=A[1:], timeout_ms=5_000)
        return True

    await stage.insist(ask)


async def led_elsewhere(stage: Stage) -> None:
    """Nothing of topic a is led by broker 2, which it prefers."""
    await stage.cluster.stop(2)
    await stage.cluster.start_broker(2)
    await stage.until(lambda: all(stage.cluster.isr(tp) == [1, 2, 3] for tp in (T0, *ELSEWHERE)))
    assert all(stage.cluster.leader(tp) != 2 for tp in ELSEWHERE)


async def elect_by_znode(stage: Stage) -> None:
    client = stage.cluster.zookeeper.client()
    await client.start()
    path = PreferredReplicaElectionZnode.PATH
    await client.create(path, PreferredReplicaElectionZnode(list(ELSEWHERE)).encode())
    await stage.until(lambda: stage.cluster.zookeeper.tree.exists(path) is None)


async def elect_by_request(stage: Stage) -> None:
    async def ask(admin: object) -> bool:
        results = await stage.admin.elect_leaders(ELSEWHERE, timeout_ms=5_000)
        known = ErrorCode.ELECTION_NOT_NEEDED
        return all(outcome == 2 or getattr(outcome, "code", None) == known for outcome in results.values())

    await stage.insist(ask)


async def wait_for_the_rebalance(stage: Stage) -> None:
    await stage.until(lambda: all(stage.cluster.leader(tp) == 2 for tp in ELSEWHERE))


async def move(stage: Stage, targets: Mapping[TopicPartition, list[int]]) -> None:
    async def ask(admin: object) -> bool:
        results = await stage.admin.alter_partition_reassignments(targets)
        return not any(results.values())

    await stage.insist(ask)


async def reassign(stage: Stage) -> None:
    """Forward; other brokers, one less, one more."""
    await move(stage, MOVED)


async def reassign_and_send_elsewhere(stage: Stage) -> None:
    """What has begun to be copied goes again."""
    await move(stage, SENT_AWAY)
    await move(stage, MOVED)


async def broker_fails(stage: Stage) -> None:
    await broker_3_dies_now(stage)
    await stage.until(lambda: 3 not in stage.cluster.isr(T0) and stage.cluster.leader(T0) > 0)
    await stage.cluster.start_broker(3)


async def broker_3_dies_now(stage: Stage) -> None:
    die(stage.cluster, 3)


async def broker_starts(stage: Stage) -> None:
    await stage.cluster.start_broker(3)


async def broker_stops(stage: Stage) -> None:
    await stage.cluster.stop(2)
    await stage.cluster.start_broker(2)


CHANGES = [
    Change("create", create, after={"a": A, "b": B}),
    Change("delete", delete, before={"a": A, "b": B}),
    Change("delete, a replica is away", delete_and_bring_back, before={"a": A, "b": B}, prepare=broker_3_dies),
    Change("grow", grow, before={"a": A[:1]}, after={"a": A}),
    Change(
        "elect",
        elect_by_znode,
        before={"a": [[2, 3, 1]] * 3},
        after={"a": [[2, 3, 1]] * 3},
        prepare=led_elsewhere,
        leaders=ELSEWHERE,
    ),
    Change(
        "elect by request",
        elect_by_request,
        before={"a": [[2, 3, 1]] * 3},
        after={"a": [[2, 3, 1]] * 3},
        prepare=led_elsewhere,
        leaders=ELSEWHERE,
    ),
    Change(
        "rebalance",
        wait_for_the_rebalance,
        before={"a": [[2, 3, 1]] * 3},
        after={"a": [[2, 3, 1]] * 3},
        prepare=led_elsewhere,
        leaders={**ELSEWHERE, T0: 1},
        properties={"leader.imbalance.check.interval.seconds": "3"},
    ),
    Change("reassign", reassign, before=BEFORE, after=AFTER, brokers=4),
    Change("reassign, and send elsewhere", reassign_and_send_elsewhere, before=BEFORE, after=AFTER, brokers=4),
    Change("a broker fails", broker_fails, before={"a": A}, after={"a": A}),
    Change("a broker starts", broker_starts, before={"a": A}, after={"a": A}, prepare=broker_3_dies),
    Change("a broker stops in order", broker_stops, before={"a": A}, after={"a": A}),
    *MOVES,
]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is many transactions, requests or turns where there are thousands of partitions is so here."""
    monkeypatch.setattr(store, "TRANSACTION_PARTITIONS", 2)
    monkeypatch.setattr(broker_orders, "MAX_PARTITIONS_PER_REQUEST", 2)
    monkeypatch.setattr(preferred_elections, "PARTITIONS_AT_ONCE", 2)
    monkeypatch.setattr(reassignments, "PARTITIONS_PER_WAVE", 2)


def run(change: Change, stop: Stop | None = None) -> list[Step]:
    trio._core._run._r.seed(0)
    steps: list[Step] = trio.run(play, change, stop, clock=MockClock(autojump_threshold=0))
    return steps


_steps: dict[str, list[Step]] = {}


def steps_of(change: Change) -> list[Step]:
    """Of the change alone, counted once."""
    if change.name not in _steps:
        _steps[change.name] = run(change)
    return _steps[change.name]


def stops_of(steps: Sequence[Step]) -> list[Stop]:
    """All of them. Whose address refuses goes on with its step, so after it is nothing else than before the next."""
    return [
        Stop(number, is_after, way)
        for way in Way
        for number, step in enumerate(steps)
        if way is not Way.CUT or step.is_write
        for is_after in (False, True)
        if not is_after or (step.has_end and way is not Way.REFUSE)
    ]


@pytest.mark.parametrize("way", Way, ids=lambda way: way.name)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_whoever_comes_next_ends_what_was_begun(change: Change, way: Way) -> None:
    steps = steps_of(change)
    for stop in sampled(stops_of(steps), ONE_IN):
        if stop.way is way:
            try:
                run(change, stop)
            except BaseException as error:
                error.add_note(f"{change.name}: {stop}, which {steps[stop.step].text}")
                raise
