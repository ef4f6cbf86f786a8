"""Creating and deleting topics, through the API, by other tools, and across fail-overs at every write."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.agenda import NotController
from strandline.controller.controller_context import ControllerContext, Topic
from strandline.controller.topics.creation_checks import DEFAULT_FACTOR, configured_replicas
from strandline.controller.topics.deletion_tracker import MAX_UNFINISHED, DeletionTracker
from strandline.protocol import znodes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LEADER_EPOCH_TOPIC_DELETED,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    LeaderAndIsrRequest,
    PartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.runtime.config.reading import load_broker_config

TP = TopicPartition("t", 0)


async def test_a_created_topic_has_an_id_leaders_and_is_known_everywhere(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    topic = CreatableTopic("t", num_partitions=6, replication_factor=2, configs={"min.insync.replicas": "2"})
    [result] = (await controller.ask(CreateTopicsRequest([topic]))).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 6, 2)
    znode = znodes.TopicZnode.decode("t", (await cluster.admin.get("/brokers/topics/t")).data)
    assert znode.topic_id == result.topic_id != NO_TOPIC_ID
    ordered = [1, 2, 3]
    assert znode.partitions == {i: [ordered[i % 3], ordered[(i + 1 + i // 3) % 3]] for i in range(6)}
    config = znodes.ConfigZnode.decode("c", (await cluster.admin.get("/config/topics/t")).data)
    assert config.config == {"min.insync.replicas": "2"}
    for partition in range(6):
        state = await cluster.state("t", partition)
        assert (state.leader, state.isr, state.leader_epoch) == (
            ordered[partition % 3],
            znode.partitions[partition],
            0,
        )
        tp = TopicPartition("t", partition)
        for broker in cluster.brokers.values():  # at once: the answer waited for it
            assert broker.metadata[tp].leader == state.leader
            if broker.broker_id in state.isr:
                assert broker.roles[tp].leader == state.leader
                assert broker.roles[tp].is_new
                assert broker.logs[tp] == result.topic_id


async def test_defaults_come_from_the_brokers_configuration(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1, num_partitions=4, default_replication_factor=3)
    [result] = (await controller.ask(CreateTopicsRequest([CreatableTopic("t")]))).topics
    assert (result.num_partitions, result.replication_factor) == (4, 3)


LOWERED = "fewer replicas than the default, for want of live brokers"


@pytest.mark.parametrize("live", [1, 2, 3, 4])
async def test_a_replication_factor_that_nobody_set_is_three_or_as_many_as_live(
    autojump_clock: MockClock, cluster: Any, live: int
) -> None:
    await cluster.start(*range(1, live + 1))
    controller = await cluster.controller_on(1)
    request = CreateTopicsRequest([CreatableTopic("t"), CreatableTopic("u"), CreatableTopic("v", assignments={0: [1]})])
    results = (await controller.ask(request)).topics
    assert [result.replication_factor for result in results] == [min(3, live), min(3, live), 1]
    warnings = [(entry["topics"], entry["replicas"], entry["default"]) for entry in cluster.logged(LOWERED)]
    assert warnings == ([(["t", "u"], live, 3)] if live < 3 else []), "one for the request"


async def test_a_replication_factor_that_was_set_is_not_lowered(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    config = {"default_replication_factor": 3, "explicit": (DEFAULT_FACTOR,)}
    controller = await cluster.controller_on(1, **config)
    [result] = (await controller.ask(CreateTopicsRequest([CreatableTopic("t")]))).topics
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "default.replication.factor=3, but 2 brokers" in result.error_message
    assert await cluster.admin.children("/brokers/topics") == []
    [result] = (await controller.ask(CreateTopicsRequest([CreatableTopic("t", 1, 4)]))).topics
    assert "replication factor 4, but 2 brokers are registered" in result.error_message
    cluster.kill(2)
    await cluster.come_to_rest()
    [result] = (await controller.ask(CreateTopicsRequest([CreatableTopic("t", 1, 4)]))).topics
    assert "replication factor 4, but 1 broker is registered" in result.error_message
    assert cluster.logged(LOWERED) == []


@pytest.mark.parametrize(("live", "replicas"), [(0, 1), (1, 1), (2, 2), (5, 3)])
def test_any_key_of_replicas_adapts_where_it_is_left_out_and_counts_where_it_is_set(live: int, replicas: int) -> None:
    minimum = {"broker.id": "1", "zookeeper.connect": "memory:0"}
    for key in (DEFAULT_FACTOR, "offsets.topic.replication.factor"):
        assert configured_replicas(load_broker_config(minimum), key, live) == replicas
        assert configured_replicas(load_broker_config({**minimum, key: "3"}), key, live) == 3


BAD_TOPICS = [
    (CreatableTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (CreatableTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (CreatableTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (CreatableTopic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
    (CreatableTopic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (CreatableTopic("t", num_partitions=0), ErrorCode.INVALID_PARTITIONS),
    (CreatableTopic("t", num_partitions=10_001), ErrorCode.INVALID_PARTITIONS),
    (CreatableTopic("t", num_partitions=-2), ErrorCode.INVALID_PARTITIONS),
    (CreatableTopic("t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (CreatableTopic("t", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
    (CreatableTopic("t", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (CreatableTopic("t", assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (CreatableTopic("t", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (CreatableTopic("t", num_partitions=1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
    (CreatableTopic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    (CreatableTopic("t", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
    (CreatableTopic("t", configs={"segment.index.bytes": "11"}), ErrorCode.INVALID_CONFIG),
]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_what_cannot_be_created_is_refused_alike_in_a_dry_run(
    autojump_clock: MockClock, cluster: Any, validate_only: bool
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "there", [[1]])
    await cluster.create(controller, "a.b", [[1]])
    for topic, code in BAD_TOPICS:
        request = CreateTopicsRequest([topic], validate_only=validate_only)
        [result] = (await controller.ask(request)).topics
        assert (result.error_code, bool(result.error_message)) == (code, True), topic
        if code is ErrorCode.TOPIC_ALREADY_EXISTS:
            assert result.error_message == "Topic 'there' already exists."  # Kafka's words: scripts look for them
    twice = CreateTopicsRequest([CreatableTopic("t"), CreatableTopic("t")], validate_only=validate_only)
    assert {r.error_code for r in (await controller.ask(twice)).topics} == {ErrorCode.INVALID_REQUEST}
    assert await cluster.admin.children("/brokers/topics") == ["a.b", "there"]


async def test_a_dry_run_creates_nothing_and_says_what_would_be(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    request = CreateTopicsRequest([CreatableTopic("t", num_partitions=3)], validate_only=True)
    [result] = (await controller.ask(request)).topics
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert await cluster.admin.children("/brokers/topics") == []


async def test_the_answer_waits_for_the_brokers_at_most_as_long_as_it_may(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.come_to_rest()
    cluster.brokers[2].gate = trio.Event()
    topic = CreatableTopic("t", assignments={0: [1]})
    [result] = (await controller.ask(CreateTopicsRequest([topic], timeout_ms=500))).topics
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert cluster.brokers[1].roles[TP].leader == 1  # creation goes on all the same


async def test_a_topic_that_another_tool_wrote_gets_leaders_and_an_id(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    await cluster.controller_on(1)
    await cluster.admin.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[2,1],"1":[1,2]}}')
    await cluster.until(lambda: TP in cluster.brokers[2].roles)
    znode = znodes.TopicZnode.decode("t", (await cluster.admin.get("/brokers/topics/t")).data)
    assert znode.topic_id == cluster.brokers[2].logs[TP]
    assert await ids_of(cluster, "t") == [znodes.encode_uuid(znode.topic_id)]


async def ids_of(cluster: Any, topic: str) -> list[str]:
    """Names of the znodes that tell this topic from another one of its name."""
    return [name for name in await cluster.admin.children(f"/brokers/topics/{topic}") if name != "partitions"]


@pytest.mark.parametrize("with_id", [True, False])
async def test_a_new_controller_adds_the_ids_znode_before_it_tells_anybody_of_the_topic(
    with_id: bool, autojump_clock: MockClock, cluster: Any
) -> None:
    """As it finds the topics of a Kafka whose ZooKeeper it takes over."""
    await cluster.start(1, 2)
    topic_id = b"i" * 16 if with_id else None
    await cluster.admin.create("/brokers/topics/t", znodes.TopicZnode(topic_id, {0: [2]}).encode())
    state = znodes.PartitionStateZnode(controller_epoch=0, leader=2, leader_epoch=7, isr=[2])
    await cluster.admin.create(znodes.PartitionStateZnode.path("t", 0), state.encode(), parents=True)
    seen: list[list[str]] = []
    cluster.brokers[2].script = lambda _: seen.append(list(cluster.zookeeper.tree.children("/brokers/topics/t")))
    await cluster.controller_on(1)
    await cluster.until(lambda: TP in cluster.brokers[2].roles)
    name = znodes.encode_uuid(cluster.brokers[2].logs[TP])
    assert all(name in children for children in seen)
    assert await ids_of(cluster, "t") == [name]


async def test_a_topic_whose_znode_another_tool_wrote_without_its_id_gets_it_back(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """The logs have that id, and would be another topic's."""
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1, 2]])
    path = znodes.TopicZnode.path("t")
    known = znodes.TopicZnode.decode(path, (await cluster.admin.get(path)).data)
    await cluster.admin.set(path, b'{"version":2,"partitions":{"0":[1,2]}}', -1)
    cluster.kill(1)
    await cluster.controller_on(2)
    await cluster.come_to_rest()
    assert znodes.TopicZnode.decode(path, (await cluster.admin.get(path)).data) == known


async def test_a_topic_that_was_made_anew_during_its_deletion_is_left_alone(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """By another tool, while the last write of the deletion was on its way and its answer was lost."""
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2]])
    topic = controller.term.context.topics["t"]
    await controller.term.duties.topic_store.remove(topic)
    other = znodes.TopicZnode(b"i" * 16, {0: [1]}).encode()
    await cluster.admin.create("/brokers/topics/t", other)
    await cluster.admin.create("/config/topics/t", b'{"version":1,"config":{}}')
    await controller.term.duties.topic_store.remove(topic)
    assert (await cluster.admin.get("/brokers/topics/t")).data == other
    assert await cluster.admin.exists("/config/topics/t") is not None
    assert cluster.logged("topic was made anew while it was being deleted: left alone")


async def test_partitions_whose_replicas_are_all_dead_get_their_leader_when_one_comes(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    await cluster.controller_on(1)
    cluster.kill(2)
    await cluster.come_to_rest()
    await cluster.admin.create("/brokers/topics/t", znodes.TopicZnode(b"i" * 16, {0: [2]}).encode())
    await cluster.come_to_rest()
    assert await cluster.admin.exists(znodes.PartitionStateZnode.path("t", 0)) is None
    await cluster.brokers[2].start()
    await cluster.until(lambda: TP in cluster.brokers[2].roles)
    assert cluster.brokers[2].roles[TP].leader == 2


async def test_many_partitions_are_written_in_transactions(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    topic = CreatableTopic("t", num_partitions=2500, replication_factor=3)
    [result] = (await controller.ask(CreateTopicsRequest([topic]))).topics
    assert result.error_code == 0
    assert len(cluster.brokers[2].roles) == 2500
    assert (
        max(
            sum(len(t.partition_states) for t in request.topic_states)
            for request in cluster.brokers[2].told(LeaderAndIsrRequest)
        )
        <= 2000
    )
    cluster.kill(1)
    after = await cluster.controller_on(2)
    assert len(after.term.context.states) == 2500
    assert after.term.context.offline_partitions() == []


# --- deletion ------------------------------------------------------------------------------------------------------


async def test_a_deleted_topic_is_gone_from_brokers_and_zookeeper(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    created = await cluster.create(controller, "t", [[2, 3], [3, 1]])
    await cluster.create(controller, "kept", [[2, 3]])
    [result] = (await controller.ask(DeleteTopicsRequest(["t"]))).responses
    assert (result.error_code, result.topic_id) == (0, created.topics[0].topic_id)
    assert await gone(cluster, "t")
    for broker in cluster.brokers.values():
        assert {tp.topic for tp in broker.logs} <= {"kept"}
        assert set(broker.metadata) == {TopicPartition("kept", 0)}
    # What a late one would be recognised by.
    for broker in cluster.brokers.values():
        for stop in broker.told(StopReplicaRequest):
            for state in stop.partition_states:
                assert state.leader_epoch == LEADER_EPOCH_TOPIC_DELETED
                assert (state.delete_partition, state.topic_id) == (True, created.topics[0].topic_id)


async def gone(cluster: Any, topic: str) -> bool:
    paths = [f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}"]
    return not any([await cluster.admin.exists(path) for path in paths])


async def test_a_late_deletion_does_not_touch_the_topic_that_was_made_anew(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """A broker that follows the rules refuses the old id (invariant 33)."""
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2]])
    await controller.ask(DeleteTopicsRequest(["t"]))
    [late] = cluster.brokers[2].told(StopReplicaRequest)
    created = await cluster.create(controller, "t", [[2]])
    answer = cluster.brokers[2].answer(late)
    assert [error.error_code for error in answer.partition_errors] == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert cluster.brokers[2].logs[TP] == created.topics[0].topic_id
    assert (await cluster.state("t")).leader_epoch == 0


async def test_deletion_waits_for_replicas_on_dead_brokers(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    cluster.kill(3)
    await cluster.come_to_rest()
    [result] = (await controller.ask(DeleteTopicsRequest(["t"], timeout_ms=1000))).responses
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert TP not in cluster.brokers[2].logs
    [again] = (await controller.ask(CreateTopicsRequest([CreatableTopic("t")]))).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    # No election, though a replica comes and goes meanwhile.
    cluster.kill(2)
    await cluster.brokers[2].start()
    await cluster.come_to_rest()
    assert TP not in cluster.brokers[2].roles
    await cluster.brokers[3].start()
    await cluster.until_async(lambda: gone(cluster, "t"))
    assert TP not in cluster.brokers[3].logs


async def test_a_replica_that_cannot_be_deleted_now_is_tried_again(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2]])
    refusals = iter(range(3))

    def refuse(request: Any) -> Any:
        if isinstance(request, StopReplicaRequest) and next(refusals, None) is not None:
            return StopReplicaResponse(0, [PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)])
        return None

    cluster.brokers[2].script = refuse
    [result] = (await controller.ask(DeleteTopicsRequest(["t"]))).responses
    assert result.error_code == 0
    assert TP not in cluster.brokers[2].logs


async def test_deletion_asked_for_in_zookeeper_is_served(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2]])
    await cluster.admin.create("/admin/delete_topics/t")
    await cluster.admin.create("/admin/delete_topics/never-was")
    await cluster.until_async(lambda: gone(cluster, "t"))
    await cluster.until_async(lambda: gone(cluster, "never-was"))


async def test_deletion_can_be_switched_off(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1, delete_topic_enable=False)
    await cluster.create(controller, "t", [[2]])
    [result] = (await controller.ask(DeleteTopicsRequest(["t"]))).responses
    assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    await cluster.admin.create("/admin/delete_topics/t")
    await cluster.come_to_rest()
    assert cluster.brokers[2].roles[TP].leader == 2


async def test_a_topic_is_deleted_by_its_id(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    topic_id = (await cluster.create(controller, "t", [[1, 2]])).topics[0].topic_id
    await cluster.create(controller, "kept", [[1, 2]])
    both = [DeleteTopicState(topic_id=topic_id)] * 2
    [result] = (await controller.ask(DeleteTopicsRequest(topics=both))).responses
    assert (result.name, result.error_code, result.topic_id) == ("t", 0, topic_id)
    assert await gone(cluster, "t")
    assert list(controller.term.context.topics) == ["kept"]


async def test_who_only_asks_is_told_what_would_go_and_nothing_goes(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    created = await cluster.create(controller, "t", [[1]])
    asked = DeleteTopicsRequest(["never-was", "t", "__consumer_offsets"], validate_only=True)
    unknown, found, internal = (await controller.ask(asked)).responses
    assert (found.name, found.error_code, found.topic_id) == ("t", ErrorCode.NONE, created.topics[0].topic_id)
    assert (unknown.name, unknown.error_code) == ("never-was", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await cluster.admin.exists("/admin/delete_topics/t") is None and "t" in controller.term.context.topics


async def test_who_was_replaced_unknowingly_names_no_topic(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    await cluster.admin.set("/controller_epoch", b"99", -1)
    with pytest.raises(NotController):
        await controller.ask(DeleteTopicsRequest(["t"], validate_only=True))


async def test_a_topic_made_anew_is_not_deleted_by_the_id_of_the_one_before(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    former_id = (await cluster.create(controller, "t", [[1, 2]])).topics[0].topic_id
    await controller.ask(DeleteTopicsRequest(["t"]))
    await cluster.create(controller, "t", [[1, 2]])
    [result] = (await controller.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=former_id)]))).responses
    assert (result.name, result.error_code, result.topic_id) == (None, ErrorCode.UNKNOWN_TOPIC_ID, former_id)
    assert "t" in controller.term.context.topics and not controller.term.context.deleting


async def test_a_topic_is_named_by_its_name_or_by_its_id_alone(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    topic_id = (await cluster.create(controller, "t", [[1]])).topics[0].topic_id
    asked = [DeleteTopicState("t", topic_id), DeleteTopicState(), DeleteTopicState("never-was")]
    results = (await controller.ask(DeleteTopicsRequest(topics=asked))).responses
    assert [(result.name, result.error_code) for result in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("never-was", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert "t" in controller.term.context.topics


async def test_an_unknown_topic_cannot_be_deleted(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    [result] = (await controller.ask(DeleteTopicsRequest(["t", "t"]))).responses
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- a controller that dies before its nth write ---------------------------------------------------------------------


class DiesBefore:
    """Stops for ever before its nth write; `dead` is then set."""

    def __init__(self, coordination: Any) -> None:
        self._coordination = coordination
        self.writes_left = 10**9
        self.dead = trio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._coordination, name)
        if name not in ("multi", "multi_many", "create", "set", "delete"):
            return method

        async def write(*args: Any, **kwargs: Any) -> Any:
            if self.writes_left == 0:
                self.dead.set()
                await trio.sleep_forever()
            self.writes_left -= 1
            return await method(*args, **kwargs)

        return write


@pytest.mark.parametrize("nth", range(8))
async def test_creation_is_finished_or_never_was_whichever_write_the_controller_dies_before(
    autojump_clock: MockClock, cluster: Any, nth: int
) -> None:
    await cluster.start(1, 2, 3)
    dying: list[DiesBefore] = []

    def via(coordination: Any) -> DiesBefore:
        dying.append(DiesBefore(coordination))
        return dying[0]

    first = await cluster.controller_on(1, via=via)
    await cluster.come_to_rest()
    dying[0].writes_left = nth
    topic = CreatableTopic("t", assignments={p: [2, 3] for p in range(3)})

    async def create() -> None:
        with suppress(NotController):
            await first.ask(CreateTopicsRequest([topic]))

    cluster.nursery.start_soon(create)
    await cluster.come_to_rest()
    there = await cluster.admin.exists("/brokers/topics/t") is not None
    cluster.kill(1)
    await cluster.controller_on(3)
    await cluster.come_to_rest()
    assert there == (await cluster.admin.exists("/brokers/topics/t") is not None) == (nth >= 1)
    if there:
        for partition in range(3):
            tp = TopicPartition("t", partition)
            assert (await cluster.state("t", partition)).leader == 2
            assert cluster.brokers[2].roles[tp].leader == cluster.brokers[3].roles[tp].leader == 2
            assert cluster.brokers[3].metadata[tp].leader == 2


@pytest.mark.parametrize("nth", range(6))
async def test_deletion_is_finished_whichever_write_the_controller_dies_before(
    autojump_clock: MockClock, cluster: Any, nth: int
) -> None:
    await cluster.start(1, 2, 3)
    dying: list[DiesBefore] = []

    def via(coordination: Any) -> DiesBefore:
        dying.append(DiesBefore(coordination))
        return dying[0]

    first = await cluster.controller_on(1, via=via)
    await cluster.create(first, "t", [[2, 3]] * 3)
    await cluster.come_to_rest()
    dying[0].writes_left = nth
    await cluster.admin.create("/admin/delete_topics/t")
    await cluster.come_to_rest()
    cluster.kill(1)
    await cluster.controller_on(3)
    await cluster.until_async(lambda: gone(cluster, "t"))
    await cluster.come_to_rest()
    for broker_id in (2, 3):
        assert not cluster.brokers[broker_id].logs
        assert not cluster.brokers[broker_id].roles
        assert not cluster.brokers[broker_id].metadata


@pytest.mark.parametrize("lose", ["drop_next_reply", "drop_next_request"])
async def test_a_creation_whose_answer_zookeeper_lost_is_no_duplicate(
    autojump_clock: MockClock, cluster: Any, lose: str
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.come_to_rest()
    getattr(cluster.zookeeper, lose)("/controller_epoch")
    await cluster.create(controller, "t", [[2]])
    assert (await cluster.state("t")).leader == 2


# --- the bookkeeping -------------------------------------------------------------------------------------------------


def doomed_context() -> ControllerContext:
    context = ControllerContext()
    context.topics = {"t": Topic("t", b"i" * 16, {0: (1, 2)})}
    context.brokers = {1: None}
    return context


def test_the_steps_of_a_deletion_are_kept_by_replica() -> None:
    context, tracker = doomed_context(), DeletionTracker()
    tracker.begin(context, "t")
    assert tracker.start_next(context) == {1: [TP]}
    assert tracker.start_next(context) == {}, "the one was asked, the other is not there"
    assert tracker.answered(1, TP, ErrorCode.NONE)
    assert tracker.finished() == []
    assert tracker.start_next(context) == {}
    context.brokers[2] = None
    tracker.retry(2)
    assert tracker.start_next(context) == {2: [TP]}
    assert not tracker.answered(2, TP, ErrorCode.KAFKA_STORAGE_ERROR)
    tracker.retry(2)
    assert tracker.start_next(context) == {2: [TP]}
    tracker.broker_failed(2)
    assert tracker.answered(2, TP, ErrorCode.NONE)  # of its former life: changes nothing
    assert tracker.finished() == []
    tracker.retry(2)
    tracker.start_next(context)
    assert tracker.answered(2, TP, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert tracker.finished() == ["t"]
    tracker.forget("t")
    assert tracker.finished() == tracker.topics == []


def test_what_holds_deletions_up_is_kept_for_so_many_and_goes_with_the_broker_that_refused() -> None:
    context, tracker = doomed_context(), DeletionTracker()
    context.topics = {f"t{n}": Topic(f"t{n}", b"i" * 16, {0: (1,)}) for n in range(MAX_UNFINISHED + 5)}
    for name in context.topics:
        tracker.begin(context, name)
    tracker.start_next(context)
    assert tracker.unfinished(context) == {}
    for name in context.topics:
        tp = TopicPartition(name, 0)
        tracker.answered(1, tp, ErrorCode.KAFKA_STORAGE_ERROR)
        tracker.note_refusal(1, tp, "its log\nis damaged")
    unfinished = tracker.unfinished(context)
    assert len(unfinished) == MAX_UNFINISHED
    assert unfinished["t0"] == "broker 1 cannot delete t0-0: its log is damaged"
    tracker.broker_failed(1)
    assert tracker.unfinished(context) == {}, "it may not refuse in its next life"
    del context.brokers[1]
    assert tracker.unfinished(context)["t0"] == "broker 1, which has a replica of t0-0, is not there"
