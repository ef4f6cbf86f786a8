"""Elections on /controller, the twelve steps, brokers that come and go."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.term.term import MENDED_CHECK_SECONDS
from strandline.protocol import znodes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionError,
    RefusedReplica,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from strandline.protocol.types import TopicPartition
from strandline.testkit.zookeeper.client import WatchKind

TP = TopicPartition("t", 0)


async def test_the_first_controller_has_epoch_1_and_the_next_one_2(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    first = await cluster.controller_on(1)
    second = cluster.start_controller(2)
    await cluster.come_to_rest()
    assert (first.epoch, second.is_active, second.epoch) == (1, False, -1)
    znode = await cluster.admin.get(znodes.CONTROLLER_PATH)
    assert znodes.ControllerZnode.decode(znodes.CONTROLLER_PATH, znode.data).broker_id == 1
    cluster.kill(1)
    await cluster.until(lambda: second.is_active)
    assert second.epoch == 2
    assert (await cluster.admin.get(znodes.CONTROLLER_EPOCH_PATH)).data == b"2"


class Recording:
    """Remembers in which order paths were looked at and written."""

    def __init__(self, coordination: Any) -> None:
        self._coordination = coordination
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._coordination, name)
        if name not in ("exists", "children", "get", "get_many", "multi", "multi_many", "sync"):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            first: Any = args[0] if args else ""
            if name == "multi":
                first = first[-1].path
            elif name == "multi_many":
                first = first[0][-1].path if first else ""
            elif name == "get_many":
                first = first[0] if first else ""
            self.calls.append((name, first))
            return await method(*args, **kwargs)

        return call


async def test_a_fail_over_takes_the_twelve_steps_in_order(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    before = await cluster.controller_on(1)
    await cluster.create(before, "t", [[1, 2], [2, 3]])
    await cluster.admin.create("/admin/delete_topics/nothing")
    cluster.kill(1)
    recording = Recording(cluster.brokers[2].coordination)
    for broker in cluster.brokers.values():
        broker.requests.clear()
    after = await cluster.controller_on(2, via=lambda _: recording)
    await cluster.come_to_rest()

    def step(name: str, path: str, since: int = 0) -> int:
        return recording.calls.index((name, path), since)

    order = [
        step("multi", "/controller_epoch"),  # 1
        step("sync", ""),
        step("children", "/brokers/topics"),  # 4
        step("children", "/admin/delete_topics"),  # 5
        step("children", "/brokers/ids"),  # 6
        step("get_many", "/brokers/topics/t"),  # 7
        step("get_many", "/brokers/topics/t/partitions/0/state"),
        step("multi_many", "/brokers/topics/t/partitions/0/state"),  # 8
        step("exists", "/admin/reassign_partitions"),  # 2, with 12
        step("exists", "/admin/preferred_replica_election"),  # 3, with 12
    ]
    assert order == sorted(order)
    assert after.epoch == 2  # 9
    for broker_id in (2, 3):  # 10
        first, *rest = cluster.brokers[broker_id].requests
        assert isinstance(first, UpdateMetadataRequest)
        assert [b.id for b in first.live_brokers] == [2, 3]
        assert [len(topic.partition_states) for topic in first.topic_states] == [2]
        assert isinstance(rest[0], LeaderAndIsrRequest)
    assert await cluster.admin.children("/admin/delete_topics") == []  # 12


async def test_a_dead_leader_is_replaced_from_the_isr_and_everybody_is_told(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1]])
    cluster.kill(2)
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch, state.controller_epoch) == (3, [3, 1], 1, 1)
    role = cluster.brokers[1].roles[TP]
    assert (role.leader, role.leader_epoch, role.isr, role.partition_epoch) == (3, 1, [3, 1], 1)
    await cluster.come_to_rest()
    for survivor in (1, 3):
        metadata = cluster.brokers[survivor].metadata[TP]
        assert (metadata.leader, metadata.leader_epoch, metadata.offline_replicas) == (3, 1, [2])
        assert cluster.brokers[survivor].known_brokers == [1, 3]


async def test_a_killed_brokers_session_lingers_until_its_timeout(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    cluster.kill(2, noticed=False)
    await trio.sleep(3)
    assert (await cluster.state("t")).leader == 2
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)


async def test_without_a_live_isr_member_there_is_no_leader_until_one_returns(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    await cluster.leader_writes_isr("t", 0, [2])
    await cluster.come_to_rest()
    cluster.kill(2)
    await cluster.until(lambda: len(controller.term.context.offline_partitions()) == 1)
    await cluster.come_to_rest()
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (-1, [2], 1)
    assert cluster.brokers[1].metadata[TP].leader == -1
    await cluster.brokers[2].start()
    await cluster.until(lambda: len(controller.term.context.offline_partitions()) == 0)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, [2], 2)
    await cluster.until(lambda: cluster.brokers[2].roles[TP].leader_epoch == 2)


async def test_a_stray_replica_leads_only_where_the_topic_allows_it(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "safe", [[2, 3]])
    await cluster.create(controller, "loose", [[2, 3]], unclean_leader_election_enable="true")
    for topic in ("safe", "loose"):
        await cluster.leader_writes_isr(topic, 0, [2])
    await cluster.come_to_rest()
    cluster.kill(2)
    await cluster.come_to_rest()
    assert (await cluster.state("safe")).leader == -1
    loose = await cluster.state("loose")
    assert (loose.leader, loose.isr) == (3, [3])
    assert controller.counts.unclean_elections == 1
    assert [entry["topic"] for entry in cluster.logged("unclean election, acknowledged records may be lost")] == [
        "loose"
    ]


async def test_a_started_broker_learns_the_metadata_then_its_roles(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3], [3, 1]])
    cluster.kill(3)
    await cluster.come_to_rest()
    cluster.brokers[3].requests.clear()
    await cluster.brokers[3].start()
    await cluster.until(lambda: len(cluster.brokers[3].roles) == 2)
    first, second, *_ = cluster.brokers[3].requests
    assert isinstance(first, UpdateMetadataRequest)
    assert isinstance(second, LeaderAndIsrRequest)
    assert len(first.topic_states[0].partition_states) == 2
    assert first.broker_epoch == second.broker_epoch == cluster.brokers[3].epoch
    await cluster.come_to_rest()
    assert cluster.brokers[1].known_brokers == [1, 2, 3]
    # It does not lead again, nor stand in the ISR, until its leaders say so.
    assert (await cluster.state("t", 1)).isr == [1]


async def test_a_fast_bounce_is_a_failure_and_a_start(autojump_clock: MockClock, cluster: Any) -> None:
    """The controller's server lags, so it sees one change: the same id under another epoch."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    bounced = cluster.brokers[2]
    old_epoch = bounced.epoch
    cluster.zookeeper.lag(cluster.brokers[1].coordination)
    cluster.kill(2)
    await bounced.start()
    bounced.requests.clear()
    cluster.zookeeper.catch_up(cluster.brokers[1].coordination)
    await cluster.until(lambda: TP in bounced.roles)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (3, [3], 1)
    assert bounced.roles[TP].leader == 3
    assert old_epoch != bounced.epoch
    assert {request.broker_epoch for request in bounced.requests} == {bounced.epoch}


async def test_a_leadership_of_a_former_life_ends_at_a_fail_over_too(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    cluster.kill(1)
    cluster.kill(2)  # and nobody is there to see it
    await cluster.brokers[2].start()
    await cluster.controller_on(3)
    state = await cluster.state("t")
    assert state.leader_epoch == 1
    await cluster.until(lambda: TP in cluster.brokers[2].roles)
    assert cluster.brokers[2].roles[TP].leader_epoch == 1


async def test_isr_changes_of_leaders_reach_every_broker_and_the_notes_go(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1], [3, 1, 2]])
    await cluster.leader_writes_isr("t", 0, [2, 3])
    await cluster.leader_writes_isr("t", 1, [3])
    await cluster.until(lambda: all(b.metadata[TP].isr == [2, 3] for b in cluster.brokers.values()))
    await cluster.until(lambda: all(b.metadata[TopicPartition("t", 1)].isr == [3] for b in cluster.brokers.values()))
    await cluster.come_to_rest()
    assert await cluster.admin.children(znodes.ISR_CHANGE_NOTIFICATION_PATH) == []
    assert controller.term.context.states[TP].zk_version == 1


async def test_a_partition_that_its_leader_changed_meanwhile_is_read_and_planned_again(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """BadVersion for one of many: the others are written, that one is planned from what it says now."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1]] * 5)
    await cluster.leader_writes_isr("t", 3, [2, 1], notify=False)
    cluster.kill(2)
    await cluster.come_to_rest()
    for partition, (leader, isr) in enumerate([(3, [3, 1])] * 3 + [(1, [1])] + [(3, [3, 1])]):
        state = await cluster.state("t", partition)
        assert (state.leader, state.isr) == (leader, isr), partition
        assert cluster.brokers[1].roles[TopicPartition("t", partition)].leader == leader


async def test_a_broker_that_does_not_answer_holds_up_nobody_and_gets_the_last_word(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3, 4)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 4]])
    await cluster.come_to_rest()
    silent = cluster.brokers[4]
    silent.gate = trio.Event()
    cluster.kill(2)
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)
    await cluster.brokers[2].start()
    cluster.kill(3)
    await cluster.come_to_rest()
    assert (await cluster.state("t")).leader == 4
    silent.gate.set()
    await cluster.until(lambda: silent.roles[TP].leader == 4)
    epochs = [
        state.leader_epoch
        for request in silent.told(LeaderAndIsrRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    assert epochs == sorted(epochs)


async def test_a_refused_role_is_told_again_until_it_is_taken(autojump_clock: MockClock, cluster: Any) -> None:
    """A become-follower that failed half way is repeated, not forgotten (invariant 32)."""
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    refusals = iter(range(3))

    def refuse(request: Any) -> Any:
        if isinstance(request, LeaderAndIsrRequest) and next(refusals, None) is not None:
            return LeaderAndIsrResponse(0, [PartitionError("t", 0, ErrorCode.UNKNOWN_SERVER_ERROR)])
        return None

    cluster.brokers[2].script = refuse
    await cluster.create(controller, "t", [[1, 2]])
    await cluster.until(lambda: TP in cluster.brokers[2].roles)
    assert len(cluster.brokers[2].told(LeaderAndIsrRequest)) == 4


async def test_leadership_leaves_a_replica_whose_log_failed(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)

    def broken(request: Any) -> Any:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(0, [PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, "its disk failed")])
        return None

    cluster.brokers[2].script = broken
    await cluster.create(controller, "t", [[2, 3]])
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)
    await cluster.come_to_rest()
    assert (await cluster.state("t")).isr == [3]
    for broker in cluster.brokers.values():
        assert broker.metadata[TP].offline_replicas == [2]
        assert broker.metadata[TP].refused_replicas == [RefusedReplica(2, "its disk failed")]


@pytest.mark.parametrize("announced_during_an_election", [False, True])
async def test_a_broker_that_announces_a_failed_directory_loses_leadership_and_the_announcement_goes(
    announced_during_an_election: bool, autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])

    def broken(request: Any) -> Any:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(0, [PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)])
        return None

    cluster.brokers[2].script = broken
    await cluster.come_to_rest()
    assert cluster.brokers[3].roles[TP].leader == 2, "nobody has said a word yet"
    if announced_during_an_election:
        cluster.kill(1)
    path = "/log_dir_event_notification/log_dir_event_"
    announcement = await cluster.admin.create(path, b'{"version":1,"broker":2,"event":1}', sequence=True)
    assert announcement == f"{path}0000000000"
    if announced_during_an_election:
        await cluster.controller_on(3)
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)
    await cluster.come_to_rest()
    assert (await cluster.state("t")).isr == [3]
    assert await cluster.admin.children("/log_dir_event_notification") == []


async def test_a_topic_with_a_broken_znode_is_reported_and_the_others_live(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 1]])
    await cluster.admin.create("/brokers/topics/broken", b"{")
    await cluster.until(lambda: bool(cluster.logged("topic left out: its znode cannot be read")))
    await cluster.admin.set(znodes.PartitionStateZnode.path("t", 0), b"nonsense", 0)
    cluster.kill(1)
    second = await cluster.controller_on(2)
    await cluster.create(second, "fine", [[2]])
    assert cluster.brokers[2].roles[TopicPartition("fine", 0)].leader == 2
    assert cluster.logged("partition left out: its state cannot be read")
    assert second.term.failed_events == 0


async def test_a_znode_that_was_mended_counts_again(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    for name in ("t", "u"):
        await cluster.create(controller, name, [[2, 1]])
    paths = znodes.PartitionStateZnode.path("t", 0), znodes.TopicZnode.path("u")
    sound = [(await cluster.admin.get(path)).data for path in paths]
    for path in paths:
        await cluster.admin.set(path, b"nonsense", 0)
    cluster.kill(1)
    controller = await cluster.controller_on(2)
    await cluster.come_to_rest()
    assert controller.term.context.states == {} and list(controller.term.context.topics) == ["t"]
    for path, data in zip(paths, sound, strict=True):
        await cluster.admin.set(path, data, 1)
    await trio.sleep(31)
    u0 = TopicPartition("u", 0)
    for tp in (TP, u0):
        assert cluster.brokers[2].metadata[tp].leader == cluster.brokers[2].roles[tp].leader == 2
        assert (cluster.brokers[2].roles[tp].leader_epoch, (await cluster.state(tp.topic)).isr) == (1, [2])
    assert not controller.term.store.unreadable_states and not controller.term.duties.topic_store.unreadable


async def test_what_is_looked_at_again_and_again_is_watched_once(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    await cluster.admin.create(znodes.TopicZnode.path("u"), b"nonsense")
    controller = await cluster.controller_on(1)
    await trio.sleep(10 * MENDED_CHECK_SECONDS)
    assert (
        len(cluster.logged("topic left out: its znode cannot be read")) > 10
        and controller.term.duties.topic_store.unreadable
    )
    watches = cluster.brokers[1].coordination.link.watches
    assert [len(watches[WatchKind.CHILDREN, path]) for path in (znodes.TOPICS_PATH, znodes.BROKER_IDS_PATH)] == [1, 1]
    await cluster.create(controller, "v", [[1]])
    assert len(watches[WatchKind.CHILDREN, znodes.TOPICS_PATH]) == 1


async def test_a_known_state_that_was_broken_and_mended_is_written_again(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    path = znodes.PartitionStateZnode.path("t", 0)
    sound = (await cluster.admin.get(path)).data
    await cluster.admin.set(path, b"nonsense", 0)
    cluster.kill(2)
    await cluster.come_to_rest()
    assert controller.term.store.unreadable_states
    await cluster.admin.set(path, sound, 1)
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)
    assert (await cluster.state("t")).isr == [3]


async def test_an_exception_in_one_event_ends_neither_the_loop_nor_the_event(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    original, failures = controller.term.store.brokers, iter(range(2))

    async def brokers(watch: Any) -> Any:
        if next(failures, None) is not None:
            raise ZeroDivisionError("a bug")
        return await original(watch)

    monkeypatch.setattr(controller.term.store, "brokers", brokers)
    cluster.kill(2)
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)
    assert controller.term.failed_events == 2
    assert controller.epoch == 1


async def test_a_brokers_answer_is_not_lost_by_an_exception_while_it_is_handled(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes only once: no watch would bring the controller to look again."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    original, failures = controller.term.store.write_states, iter(range(2))

    def broken(request: Any) -> Any:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(0, [PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)])
        return None

    async def write_states(changes: Any) -> Any:
        if changes[0].before is not None and next(failures, None) is not None:
            raise ZeroDivisionError("a bug")
        return await original(changes)

    monkeypatch.setattr(controller.term.store, "write_states", write_states)
    cluster.brokers[2].script = broken
    await cluster.create(controller, "t", [[2, 3]])
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)
    assert controller.term.failed_events == 2


async def _a_replica_is_refused(cluster: Any) -> tuple[str, bytes]:
    """Broker 3 has left the in-sync set of t-0 before."""
    await cluster.leader_writes_isr("t", 0, [2, 1])
    await cluster.come_to_rest()
    answers = [PartitionError("t", p, ErrorCode.KAFKA_STORAGE_ERROR, "its disk failed") for p in (0, 1)]
    cluster.brokers[3].script = lambda request: (
        LeaderAndIsrResponse(0, answers) if isinstance(request, LeaderAndIsrRequest) else None
    )
    return "/log_dir_event_notification/log_dir_event_", b'{"version":1,"broker":3,"event":1}'


async def _the_isr_changes(cluster: Any) -> tuple[str, bytes]:
    """t-1 takes broker 3 back in, of whose death its leader has not heard."""
    cluster.kill(3)
    await cluster.come_to_rest()
    await cluster.leader_writes_isr("t", 0, [2], notify=False)
    await cluster.leader_writes_isr("t", 1, [2, 3], notify=False)
    note = znodes.IsrChangeNotificationZnode([TP, TopicPartition("t", 1)])
    return note.SEQUENCE_PATH, note.encode()


@pytest.mark.parametrize(
    ("news", "told"),
    [(_a_replica_is_refused, ([2, 1], [RefusedReplica(3, "its disk failed")])), (_the_isr_changes, ([2], []))],
)
async def test_what_an_event_that_broke_off_had_to_tell_is_told_although_only_a_broker_is_new(
    news: Any, told: Any, autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For t-0 nothing is to be written, so it is news only once; the event breaks off over t-1."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1], [2, 3, 1]])
    announcement, write_states = await news(cluster), controller.term.store.write_states

    async def breaks_off(changes: Any) -> Any:
        monkeypatch.setattr(controller.term.store, "write_states", write_states)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(controller.term.store, "write_states", breaks_off)
    await cluster.admin.create(*announcement, sequence=True)
    await cluster.until(lambda: controller.term.failed_events == 1)
    await cluster.add_broker(4)
    await cluster.come_to_rest()
    for broker_id in (1, 2, 4):
        metadata = cluster.brokers[broker_id].metadata[TP]
        assert (metadata.isr, metadata.refused_replicas) == told


async def test_a_controlled_shutdown_moves_leadership_and_stops_followers(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3], [3, 2], [2, 3]])
    await cluster.create(controller, "single", [[2]])
    await cluster.leader_writes_isr("t", 2, [2])
    await cluster.come_to_rest()
    leaving = cluster.brokers[2]
    response = await controller.ask(ControlledShutdownRequest(2, leaving.epoch))
    # t-2 has no other replica in sync; single-0 has no other at all, which is no reason to wait.
    assert (response.error_code, response.remaining_partitions) == (0, [("t", 2)])
    assert [((await cluster.state("t", p)).leader, (await cluster.state("t", p)).isr) for p in range(3)] == [
        (3, [3]),
        (3, [3]),
        (2, [2]),
    ]
    await cluster.come_to_rest()
    assert leaving.roles[TopicPartition("t", 0)].leader == 3
    [stop] = leaving.told(StopReplicaRequest)
    assert [(s.partition_index, s.leader_epoch, s.delete_partition) for s in stop.partition_states] == [(1, 1, False)]
    # Asked again, while the follower of t-2 has caught up meanwhile, the rest moves.
    await cluster.leader_writes_isr("t", 2, [2, 3])
    await cluster.come_to_rest()
    response = await controller.ask(ControlledShutdownRequest(2, leaving.epoch))
    assert response.remaining_partitions == []
    # While it is still there it leads nothing new, and stands in no new ISR.
    await cluster.create(controller, "late", [[2, 3]])
    assert ((await cluster.state("late")).leader, (await cluster.state("late")).isr) == (3, [3])
    # Its next life is a broker like any other.
    cluster.kill(2)
    await leaving.start()
    await cluster.until(lambda: 2 in controller.term.context.brokers)
    await cluster.come_to_rest()
    assert not controller.term.context.is_leaving(2)
    assert (await cluster.state("single")).leader == 2


async def test_what_a_controlled_shutdown_has_ordered_is_not_ordered_again(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3], [3, 2]])
    await cluster.come_to_rest()
    staying = cluster.brokers[3]
    staying.requests.clear()
    await controller.ask(ControlledShutdownRequest(2, cluster.brokers[2].epoch))
    await cluster.create(controller, "other", [[3]])
    await cluster.come_to_rest()
    assert [names_in(told) for told in staying.told(LeaderAndIsrRequest)] == [["t"], ["other"]]


def names_in(order: LeaderAndIsrRequest) -> list[str]:
    return [topic.topic_name for topic in order.topic_states]


async def test_a_controlled_shutdown_of_a_former_life_is_refused(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    stale = await controller.ask(ControlledShutdownRequest(2, cluster.brokers[2].epoch - 1))
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    unknown = await controller.ask(ControlledShutdownRequest(9))
    assert unknown.error_code == ErrorCode.BROKER_NOT_AVAILABLE
