"""One acting controller: sessions that end, controllers that do not know it yet, answers that were lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.agenda import NotController
from strandline.controller.term.controller_election import try_to_be_elected
from strandline.protocol import znodes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    UNCLEAN,
    ControlledShutdownRequest,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    UpdateMetadataResponse,
)
from strandline.protocol.types import TopicPartition
from strandline.runtime.coordination import Create, SetData, TransactionFailed

TP = TopicPartition("t", 0)


class Paused:
    """A coordination whose writes of states wait at a gate: between computing and writing."""

    def __init__(self, coordination: Any) -> None:
        self._coordination = coordination
        self.reached = trio.Event()
        self.gate = trio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordination, name)

    async def multi_many(self, transactions: Any) -> Any:
        if not self.gate.is_set():
            self.reached.set()
            await self.gate.wait()
        return await self._coordination.multi_many(transactions)


async def test_a_controller_paused_before_its_write_changes_and_sends_nothing_afterwards(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """The watch on /controller does not reach it in time, so that only the fence stands between."""
    await cluster.start(1, 2, 3, 4)
    paused: list[Paused] = []

    def via(coordination: Any) -> Paused:
        paused.append(Paused(coordination))
        return paused[0]

    zombie = await cluster.controller_on(1, via=via)
    await cluster.create(zombie, "t", [[2, 3, 4]])
    await cluster.come_to_rest()
    paused[0].gate = trio.Event()
    cluster.kill(2)  # it computes: leader 3 ...
    await paused[0].reached.wait()
    cluster.zookeeper.lag(cluster.brokers[1].coordination)
    await cluster.admin.delete(znodes.CONTROLLER_PATH)
    second = await cluster.controller_on(4)
    cluster.kill(3)  # ... meanwhile the next controller makes it 4
    await cluster.until_async(lambda: leads(cluster, 4))
    await cluster.come_to_rest()
    state = await cluster.state("t")
    requests = [len(broker.requests) for broker in cluster.brokers.values()]
    term = zombie.term
    assert term.over is None  # it still believes
    paused[0].gate.set()
    await cluster.come_to_rest()
    assert "another controller was elected" in str(term.over)
    assert await cluster.state("t") == state
    assert [len(broker.requests) for broker in cluster.brokers.values()] == requests
    assert (zombie.is_active, second.is_active, second.epoch) == (False, True, 2)


async def leads(cluster: Any, broker_id: int) -> bool:
    return bool((await cluster.state("t")).leader == broker_id)


async def test_a_controller_whose_process_was_stopped_resigns_when_it_runs_again(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    stopped = await cluster.controller_on(1)
    await cluster.create(stopped, "t", [[2, 3]])
    next_one = cluster.start_controller(3)
    await cluster.come_to_rest()
    cluster.zookeeper.hold(cluster.brokers[1].coordination)
    cluster.brokers[1].reachable = False
    await cluster.until(lambda: next_one.is_active)
    assert next_one.epoch == 2
    cluster.zookeeper.heal(cluster.brokers[1].coordination)
    await cluster.come_to_rest()
    assert not stopped.is_active
    assert next_one.is_active


async def test_silence_of_zookeeper_for_a_session_timeout_ends_the_role_at_once(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """kazoo would say nothing until it reconnects."""
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    term = controller.term
    cluster.zookeeper.cut(cluster.brokers[1].coordination)
    cut_at = trio.current_time()
    await cluster.until(lambda: term.over is not None)
    assert trio.current_time() - cut_at <= 6.1
    assert "no contact" in str(term.over)
    sent = len(cluster.brokers[2].requests)
    await trio.sleep(10)
    assert len(cluster.brokers[2].requests) == sent
    cluster.zookeeper.heal(cluster.brokers[1].coordination)
    await cluster.come_to_rest()
    await cluster.brokers[1].register()
    await cluster.until(lambda: controller.is_active)
    assert controller.epoch == 2


async def test_a_short_outage_of_zookeeper_costs_no_election(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    cluster.zookeeper.stop()
    await trio.sleep(3)
    cluster.zookeeper.start()
    await cluster.come_to_rest()
    assert (controller.is_active, controller.epoch) == (True, 1)
    cluster.kill(2)  # the watches are there again
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)


async def test_an_expired_session_ends_the_term_and_the_next_one_starts_from_zookeeper(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    before = controller.term
    cluster.zookeeper.expire(cluster.brokers[1].coordination.session_id)
    await cluster.until(lambda: before.over is not None)
    assert before.over == "the ZooKeeper session expired"
    await cluster.come_to_rest()
    assert not controller.is_active  # it is not registered: it would take itself for dead
    await cluster.brokers[1].register()
    await cluster.until(lambda: controller.is_active)
    assert controller.epoch == 2
    assert controller.term is not before
    assert controller.term.context.states[TP].leader == 2


async def test_a_broker_that_knows_a_later_controller_makes_this_one_resign(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    term = controller.term
    cluster.brokers[2].script = lambda request: UpdateMetadataResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
    await cluster.add_broker(3)
    await cluster.until(lambda: term.over is not None)
    assert "later controller" in str(term.over)
    sent = len(cluster.brokers[3].requests)
    cluster.scopes[1].cancel()
    await cluster.come_to_rest()
    assert len(cluster.brokers[3].requests) == sent


async def test_an_operator_forces_an_election_by_deleting_the_znode(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    first = await cluster.controller_on(1)
    second = cluster.start_controller(2)
    await cluster.come_to_rest()
    await cluster.admin.delete(znodes.CONTROLLER_PATH)
    await cluster.until(lambda: first.is_active != second.is_active and max(first.epoch, second.epoch) == 2)
    await cluster.come_to_rest()
    assert first.is_active != second.is_active


async def test_the_own_znode_of_an_earlier_session_is_replaced_at_once(autojump_clock: MockClock, cluster: Any) -> None:
    """The broker died and is back before its old session, and its old /controller, have timed out."""
    await cluster.start(1, 2)
    await cluster.controller_on(1)
    cluster.kill(1, noticed=False)
    await cluster.brokers[1].start()
    started = trio.current_time()
    again = await cluster.controller_on(1)
    assert again.epoch == 2
    assert trio.current_time() - started < 1
    stat = await cluster.admin.exists(znodes.CONTROLLER_PATH)
    assert stat.ephemeral_owner == cluster.brokers[1].coordination.session_id
    await trio.sleep(10)  # the old session runs out: nothing of it is left that could end the new term
    assert (again.is_active, again.epoch) == (True, 2)


async def test_a_session_that_expires_during_the_election_is_no_trouble(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """The same, twice in a row."""
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    coordination = cluster.brokers[1].coordination
    cluster.zookeeper.expire(coordination.session_id)
    old = coordination.session_id
    await cluster.until(lambda: coordination.session_id not in (old, 0))
    second = coordination.session_id
    await cluster.brokers[1].register()
    cluster.zookeeper.expire(second)
    await cluster.until(lambda: coordination.session_id not in (old, second, 0))
    await cluster.brokers[1].register()

    async def leads_again() -> bool:
        stat = await cluster.admin.exists(znodes.CONTROLLER_PATH)
        return stat is not None and stat.ephemeral_owner == coordination.session_id and controller.is_active

    await cluster.until_async(leads_again)


async def test_a_lost_answer_to_a_won_election_costs_an_epoch_and_no_controller(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    await cluster.admin.create(znodes.CONTROLLER_EPOCH_PATH, b"0")
    cluster.zookeeper.drop_next_reply(znodes.CONTROLLER_PATH)
    controller = await cluster.controller_on(1)
    assert controller.epoch == 2
    assert (await cluster.admin.get(znodes.CONTROLLER_EPOCH_PATH)).data == b"2"


async def test_two_candidates_at_once_make_one_controller(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    candidates = [cluster.start_controller(b) for b in (1, 2, 3)]
    await cluster.come_to_rest()
    assert sorted(c.is_active for c in candidates) == [False, False, True]
    assert (await cluster.admin.get(znodes.CONTROLLER_EPOCH_PATH)).data == b"1"


async def test_an_unreadable_controller_znode_is_not_taken_over(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    await cluster.admin.create(znodes.CONTROLLER_PATH, b"who?")
    coordination = cluster.brokers[1].coordination
    assert await try_to_be_elected(coordination, 1, -1, lambda _: None, cluster.log) is None
    assert cluster.logged("cannot tell who is controller; delete the znode to start an election")


@pytest.mark.parametrize("lose", ["drop_next_reply", "drop_next_request"])
async def test_an_ambiguous_write_of_states_is_resolved_from_what_zookeeper_says(
    autojump_clock: MockClock, cluster: Any, lose: str
) -> None:
    """The connection breaks under the controller's write, applied or not: leaders end up the same, told to all."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1]] * 3)
    drop: Callable[[str], None] = getattr(cluster.zookeeper, lose)
    drop("/controller_epoch")  # each of its transactions begins with that check
    cluster.kill(2)
    await cluster.come_to_rest()
    assert controller.is_active and controller.epoch == 1
    for partition in range(3):
        state = await cluster.state("t", partition)
        assert (state.leader, state.isr) == (3, [3, 1])
        for broker_id in (1, 3):
            assert cluster.brokers[broker_id].roles[TopicPartition("t", partition)].leader == 3
            assert cluster.brokers[broker_id].metadata[TopicPartition("t", partition)].leader == 3
            assert cluster.brokers[broker_id].known_brokers == [1, 3]


async def test_requests_to_a_broker_that_is_not_controller_are_refused(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    await cluster.controller_on(1)
    other = cluster.start_controller(2)
    await cluster.come_to_rest()
    for request in (
        CreateTopicsRequest([CreatableTopic("t")]),
        DeleteTopicsRequest(["t"]),
        ControlledShutdownRequest(2),
        ElectLeadersRequest(UNCLEAN, [], 1000, False),
    ):
        with pytest.raises(NotController) as refusal:
            await other.ask(request)
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER


async def test_a_request_that_outlives_the_term_is_answered_with_not_controller(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    cluster.brokers[2].gate = trio.Event()
    answers = []

    async def create() -> None:
        topic = CreatableTopic("t", assignments={0: [2]})
        with pytest.raises(NotController) as refusal:
            await controller.ask(CreateTopicsRequest([topic]))
        answers.append(refusal.value.code)

    cluster.nursery.start_soon(create)
    await cluster.come_to_rest()
    assert not answers
    controller.term.resign("test")
    await cluster.until(lambda: bool(answers))
    assert answers == [ErrorCode.NOT_CONTROLLER]


@pytest.mark.parametrize("was_elected", [True, False])
async def test_a_state_that_names_a_later_controller_ends_the_term_only_if_there_was_one(
    was_elected: bool, autojump_clock: MockClock, cluster: Any
) -> None:
    """Else the number is wrong; if it ended terms, no controller would survive it."""
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 1]])
    term, path = controller.term, znodes.PartitionStateZnode.path("t", 0)
    later = znodes.PartitionStateZnode(controller_epoch=9, leader=1, leader_epoch=5, isr=[1])
    await cluster.admin.set(path, later.encode(), 0)
    if was_elected:
        epoch = await cluster.admin.get(znodes.CONTROLLER_EPOCH_PATH)
        await cluster.admin.set(znodes.CONTROLLER_EPOCH_PATH, b"9", epoch.stat.version)
    await cluster.leader_writes_isr("t", 0, [1])
    await cluster.come_to_rest()
    if was_elected:
        assert "another controller was elected" in str(term.over)
    else:
        assert term.over is None and controller.term is term
        assert cluster.brokers[2].metadata[TP].isr == [1]


async def test_every_write_of_the_controller_is_fenced(autojump_clock: MockClock, cluster: Any) -> None:
    """Whatever it writes while it serves carries the check of /controller_epoch first."""
    written: list[Any] = []

    class Watching:
        def __init__(self, coordination: Any) -> None:
            self._coordination = coordination

        def __getattr__(self, name: str) -> Any:
            assert name not in ("set", "delete"), name
            return getattr(self._coordination, name)

        async def multi(self, operations: Any) -> Any:
            written.append(operations)
            return await self._coordination.multi(operations)

        async def multi_many(self, transactions: Any) -> Any:
            written.extend(transactions)
            return await self._coordination.multi_many(transactions)

    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1, via=Watching)
    await cluster.create(controller, "t", [[2, 3], [3, 2]])
    await cluster.leader_writes_isr("t", 0, [2])
    cluster.kill(3)
    await cluster.come_to_rest()
    await cluster.brokers[3].start()
    await controller.ask(DeleteTopicsRequest(["t"]))
    election, *fenced = written
    assert [type(operation) for operation in election] == [Create, SetData]
    assert len(fenced) >= 6
    assert {operations[0].path for operations in fenced} == {znodes.CONTROLLER_EPOCH_PATH}


async def test_a_fenced_store_writes_nothing(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    epoch = await cluster.admin.get(znodes.CONTROLLER_EPOCH_PATH)
    await cluster.admin.set(znodes.CONTROLLER_EPOCH_PATH, b"7", epoch.stat.version)
    term = controller.term
    with pytest.raises(NotController):
        await controller.ask(CreateTopicsRequest([CreatableTopic("t")]))
    assert "another controller" in str(term.over)
    assert await cluster.admin.exists("/brokers/topics/t") is None
    with pytest.raises(TransactionFailed):
        await cluster.admin.multi([SetData(znodes.CONTROLLER_EPOCH_PATH, b"8", epoch.stat.version)])
