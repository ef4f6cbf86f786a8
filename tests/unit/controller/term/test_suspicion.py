"""Brokers whose processes are gone before their sessions end: what a controller makes of the hint, and who succeeds a
controller."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.controller_context import LiveBroker
from strandline.controller.term.controller_election import try_to_be_elected
from strandline.protocol import znodes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    UNCLEAN,
    ControlledShutdownRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    Message,
    PartitionError,
    Request,
)
from strandline.protocol.types import TopicPartition

TP = TopicPartition("t", 0)
SOON_S = 0.6
"""Long before the session of 6 s ends."""


def die(cluster: Any, broker_id: int) -> None:
    """SIGKILL; its machine says that nobody listens, its session lives on."""
    cluster.kill(broker_id, noticed=False)
    cluster.brokers[broker_id].refuses = True


def refuse(cluster: Any, broker_id: int) -> None:
    """A false alarm: it lives, and who connects is refused."""
    cluster.brokers[broker_id].refuses = True
    cluster.brokers[broker_id].hang_up()


def answer_again(cluster: Any, broker_id: int) -> None:
    cluster.brokers[broker_id].refuses = False


async def test_a_leader_whose_process_is_gone_is_replaced_before_its_session_ends(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1]])
    await cluster.come_to_rest()
    die(cluster, 2)
    await trio.sleep(SOON_S)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (3, [3, 1], 1)
    for survivor in (1, 3):
        metadata = cluster.brokers[survivor].metadata[TP]
        assert (metadata.leader, metadata.offline_replicas) == (3, [2])
        assert cluster.brokers[survivor].known_brokers == [1, 3]
    assert len(cluster.logged("broker failed")) == 0
    await trio.sleep(10)  # the end of its session changes nothing any more
    assert (await cluster.state("t")).leader_epoch == 1
    assert len(cluster.logged("broker failed")) == 1


async def test_a_follower_whose_process_is_gone_leaves_the_isr_as_quickly(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1, 3, 2]])
    await cluster.come_to_rest()
    die(cluster, 2)
    await trio.sleep(SOON_S)
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (1, [1, 3])
    assert cluster.brokers[1].roles[TP].isr == [1, 3]


async def test_where_detection_is_off_the_session_decides(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1, failure_detection_refused_ms=0)
    await cluster.create(controller, "t", [[2, 3, 1]])
    await cluster.come_to_rest()
    die(cluster, 2)
    await trio.sleep(3)
    assert (await cluster.state("t")).leader == 2
    await cluster.until(lambda: cluster.brokers[3].roles[TP].leader == 3)


async def test_who_was_suspected_wrongly_is_started_again_after_one_election(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1]])
    await cluster.come_to_rest()
    refuse(cluster, 2)
    await trio.sleep(SOON_S)
    assert (await cluster.state("t")).leader == 3
    answer_again(cluster, 2)
    await trio.sleep(SOON_S)
    role = cluster.brokers[2].roles[TP]
    assert (role.leader, role.leader_epoch) == (3, 1)
    assert cluster.brokers[2].metadata[TP].leader == 3
    assert cluster.brokers[2].known_brokers == [1, 2, 3] == cluster.brokers[3].known_brokers
    assert list(controller.term.context.brokers) == [1, 3, 2]
    await trio.sleep(10)
    assert (await cluster.state("t")).leader_epoch == 1


async def test_a_look_at_the_registrations_does_not_bring_a_suspect_back(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1]])
    await cluster.come_to_rest()
    refuse(cluster, 2)
    await trio.sleep(SOON_S)
    await cluster.add_broker(4)
    await trio.sleep(SOON_S)
    assert list(controller.term.context.brokers) == [1, 3, 4]
    assert (await cluster.state("t")).leader == 3


async def test_a_suspect_that_registers_anew_failed_and_started(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1]])
    await cluster.come_to_rest()
    die(cluster, 2)
    await trio.sleep(SOON_S)
    cluster.brokers[2].refuses = False
    await cluster.brokers[2].start()
    await trio.sleep(SOON_S)
    assert cluster.brokers[2].roles[TP].leader == 3
    assert controller.term.context.brokers[2].epoch == cluster.brokers[2].epoch
    assert [len(cluster.logged(event)) for event in ("broker failed", "broker started")] == [1, 1]
    assert not cluster.logged("broker that was suspected answers"), "it is another life"
    assert not controller.term.context.suspects


@pytest.mark.parametrize("unclean", ["false", "true"])
async def test_the_last_of_an_isr_is_waited_for_while_it_is_only_suspected(
    autojump_clock: MockClock, cluster: Any, unclean: str
) -> None:
    """Neither an unclean election nor a state without a leader: both would outlast a false alarm."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]], unclean_leader_election_enable=unclean)
    cluster.brokers[3].log_ends[TP] = 0, 7
    await cluster.leader_writes_isr("t", 0, [2])
    await cluster.come_to_rest()
    refuse(cluster, 2)
    await trio.sleep(3)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, [2], 0)
    assert cluster.brokers[3].metadata[TP].leader == -1, "for now there is none"
    answer_again(cluster, 2)
    await trio.sleep(SOON_S)
    assert cluster.brokers[3].metadata[TP].leader == 2
    assert (await cluster.state("t")).leader_epoch == 0, "nobody was elected"


@pytest.mark.parametrize(("unclean", "leader"), [("false", -1), ("true", 3)])
async def test_once_its_session_has_ended_it_goes_on_as_after_any(
    autojump_clock: MockClock, cluster: Any, unclean: str, leader: int
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]], unclean_leader_election_enable=unclean)
    cluster.brokers[3].log_ends[TP] = 0, 7
    await cluster.leader_writes_isr("t", 0, [2])
    await cluster.come_to_rest()
    die(cluster, 2)
    await trio.sleep(3)
    assert (await cluster.state("t")).leader == 2
    await trio.sleep(12)
    assert (await cluster.state("t")).leader == leader


async def test_an_accepted_loss_waits_for_a_suspect_too(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    cluster.brokers[3].log_ends[TP] = 0, 7
    await cluster.leader_writes_isr("t", 0, [2])
    await cluster.come_to_rest()
    die(cluster, 2)
    await trio.sleep(SOON_S)
    controller.term.context.accepted_losses[TP] = None
    controller.term.agenda.put(controller.term.duties.settlement.settle_offline)
    await trio.sleep(1)
    assert (await cluster.state("t")).leader == 2
    await trio.sleep(12)
    assert (await cluster.state("t")).leader == 3


async def test_an_accepted_loss_counts_no_more_once_the_suspect_leads_on(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """Nothing was written meanwhile. It must not wait for the death of one who leads."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    cluster.brokers[3].log_ends[TP] = 0, 7
    await cluster.leader_writes_isr("t", 0, [2])
    await cluster.come_to_rest()
    refuse(cluster, 2)
    await trio.sleep(SOON_S)
    await controller.ask(ElectLeadersRequest(UNCLEAN, [ElectLeadersTopic("t", [0])], timeout_ms=1000))
    answer_again(cluster, 2)
    await cluster.come_to_rest()
    assert cluster.brokers[3].metadata[TP].leader == 2
    die(cluster, 2)
    await trio.sleep(20)
    assert (await cluster.state("t")).leader == -1


async def test_no_log_begins_anew_while_a_whole_one_is_only_suspected(autojump_clock: MockClock, cluster: Any) -> None:
    """Though an operator accepts the loss, and all who live refuse their logs."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])

    def refuse_role(request: Request) -> Message | None:
        if not isinstance(request, LeaderAndIsrRequest):
            return None
        refused = PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, "its log is damaged")
        return LeaderAndIsrResponse(0, [refused] if request.topic_states else [])

    cluster.brokers[3].script = refuse_role
    await cluster.leader_writes_isr("t", 0, [2])
    note = znodes.LogDirEventNotificationZnode(3)
    await cluster.admin.create(note.SEQUENCE_PATH, note.encode(), sequence=True)
    await cluster.come_to_rest()
    assert (3, TP) in controller.term.context.offline_replicas
    refuse(cluster, 2)
    await trio.sleep(SOON_S)
    cluster.brokers[3].requests.clear()
    asked = [ElectLeadersTopic("t", [0])]
    await controller.ask(ElectLeadersRequest(UNCLEAN, asked, timeout_ms=1000))
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, [2], 0)
    assert not cluster.brokers[3].told(LeaderAndIsrRequest)


async def test_where_all_others_refuse_at_once_nobody_is_missed(autojump_clock: MockClock, cluster: Any) -> None:
    """As by a packet filter of the controller's own machine."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3, 1]])
    await cluster.come_to_rest()
    for other in (2, 3):
        refuse(cluster, other)
    await trio.sleep(3)
    assert not controller.term.context.suspects
    assert (await cluster.state("t")).leader_epoch == 0


async def test_of_two_brokers_one_misses_the_other(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 1]])
    await cluster.come_to_rest()
    die(cluster, 2)
    await trio.sleep(SOON_S)
    assert (await cluster.state("t")).leader == 1


async def test_a_topic_with_a_replica_on_a_suspect_is_deleted_when_that_answers_again(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    await cluster.come_to_rest()
    refuse(cluster, 2)
    await trio.sleep(SOON_S)
    await cluster.admin.create("/admin/delete_topics/t")
    await trio.sleep(3)
    assert await cluster.admin.exists("/brokers/topics/t") is not None
    answer_again(cluster, 2)
    await cluster.come_to_rest()
    assert await cluster.admin.exists("/brokers/topics/t") is None
    assert TP not in cluster.brokers[2].logs


async def test_who_stops_hands_nothing_to_a_suspect(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[3, 2, 1]])
    await cluster.come_to_rest()
    die(cluster, 2)
    await trio.sleep(SOON_S)
    await controller.ask(ControlledShutdownRequest(3, cluster.brokers[3].epoch))
    assert (await cluster.state("t")).leader == 1


async def test_who_is_about_to_stop_is_so_after_a_false_alarm_too(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    await cluster.come_to_rest()
    await controller.ask(ControlledShutdownRequest(2, cluster.brokers[2].epoch))
    refuse(cluster, 2)
    await trio.sleep(SOON_S)
    answer_again(cluster, 2)
    await trio.sleep(SOON_S)
    assert 2 in controller.term.context.brokers
    await cluster.create(controller, "late", [[2, 3]])
    assert ((await cluster.state("late")).leader, (await cluster.state("late")).isr) == (3, [3])
    cluster.kill(2)
    await cluster.brokers[2].start()
    await cluster.come_to_rest()
    await cluster.create(controller, "later", [[2, 3]])
    assert (await cluster.state("later")).leader == 2, "its next life is a broker like any other"


async def test_who_is_suspected_and_asks_to_stop_may_do_so(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3], [2, 3]])
    await cluster.create(controller, "single", [[2]])
    await cluster.leader_writes_isr("t", 1, [2])
    await cluster.come_to_rest()
    refuse(cluster, 2)
    await trio.sleep(SOON_S)
    leaving = cluster.brokers[2]
    response = await controller.ask(ControlledShutdownRequest(2, leaving.epoch))
    assert (response.error_code, response.remaining_partitions) == (0, [("t", 1)]), "only what may move yet"
    stale = await controller.ask(ControlledShutdownRequest(2, leaving.epoch - 1))
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    answer_again(cluster, 2)
    await trio.sleep(SOON_S)
    await cluster.create(controller, "late", [[2, 3]])
    assert (await cluster.state("late")).leader == 3


# --- Who succeeds a controller -------------------------------------------------------------------------------------


async def test_a_controller_whose_process_is_gone_is_succeeded_before_its_session_ends(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    first = await cluster.controller_on(1)
    others = [cluster.start_controller(broker_id) for broker_id in (2, 3)]
    await cluster.create(first, "t", [[1, 2, 3]])
    await cluster.come_to_rest()
    die(cluster, 1)
    await trio.sleep(SOON_S)
    [second] = [controller for controller in others if controller.is_active]
    assert second.epoch == 2, "elected once"
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.controller_epoch) == (2, [2, 3], 2), "and its life is not detected again"
    await trio.sleep(10)
    assert [second.epoch, list(second.term.context.brokers)] == [2, [2, 3]]


async def test_a_controller_that_was_suspected_wrongly_resigns_and_stays_a_broker(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    first = await cluster.controller_on(1)
    others = [cluster.start_controller(broker_id) for broker_id in (2, 3)]
    await cluster.create(first, "t", [[1, 2, 3]])
    await cluster.come_to_rest()
    refuse(cluster, 1)
    await trio.sleep(SOON_S)
    assert not first.is_active
    answer_again(cluster, 1)
    await cluster.come_to_rest()
    [second] = [controller for controller in others if controller.is_active]
    assert sorted(second.term.context.brokers) == [1, 2, 3]
    assert cluster.brokers[1].roles[TP].leader == 2
    assert cluster.brokers[1].controller_epoch == second.epoch == 2


async def test_a_controller_is_not_succeeded_by_one_that_reaches_nobody(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    first = await cluster.controller_on(1)
    second = cluster.start_controller(2)
    await cluster.come_to_rest()
    for other in (1, 3):
        refuse(cluster, other)
    await trio.sleep(3)
    assert (first.is_active, second.is_active) == (True, False)


async def test_a_process_that_is_gone_is_replaced_only_in_the_life_that_was_found(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    await cluster.controller_on(1)
    znode = await cluster.admin.get(znodes.BrokerIdZnode.path(1))
    found = LiveBroker(1, znode.stat.czxid, (), cluster.brokers[1].address)
    other_life = LiveBroker(1, znode.stat.czxid - 1, (), cluster.brokers[1].address)
    other_broker = LiveBroker(3, znode.stat.czxid, (), cluster.brokers[1].address)

    async def attempt(gone: LiveBroker | None) -> Any:
        coordination = cluster.brokers[2].coordination
        return await try_to_be_elected(coordination, 2, 0, lambda _: None, cluster.log, gone)

    for wrong in (None, other_life, other_broker):
        assert await attempt(wrong) is None
    won = await attempt(found)
    assert (won.epoch, won.found_gone) == (2, found)


async def test_a_session_that_ends_during_the_election_makes_it_fail(autojump_clock: MockClock, cluster: Any) -> None:
    """Somebody else may be controller by then: the next attempt reads anew."""
    await cluster.start(1, 2)
    await cluster.controller_on(1)
    znode = await cluster.admin.get(znodes.BrokerIdZnode.path(1))
    found = LiveBroker(1, znode.stat.czxid, (), cluster.brokers[1].address)

    class EndsItFirst:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster.brokers[2].coordination, name)

        async def multi(self, operations: Any) -> Any:
            cluster.kill(1)
            await trio.sleep(1)
            return await cluster.brokers[2].coordination.multi(operations)

    epoch = (await cluster.admin.get(znodes.CONTROLLER_EPOCH_PATH)).data
    assert await try_to_be_elected(EndsItFirst(), 2, 0, lambda _: None, cluster.log, found) is None
    assert (await cluster.admin.get(znodes.CONTROLLER_EPOCH_PATH)).data == epoch


async def test_stale_epochs_of_a_succeeded_controller_are_refused(autojump_clock: MockClock, cluster: Any) -> None:
    """It lives and was only suspected: what it wanted to write is not written."""
    await cluster.start(1, 2, 3)
    first = await cluster.controller_on(1)
    cluster.start_controller(2)
    await cluster.create(first, "t", [[1, 2, 3]])
    await cluster.come_to_rest()
    term = first.term
    refuse(cluster, 1)
    await trio.sleep(SOON_S)
    assert term.over is not None
    response = await cluster.controllers[2].ask(ControlledShutdownRequest(1, cluster.brokers[1].epoch))
    assert (response.error_code, response.remaining_partitions) == (0, []), "and it may stop: it leads nothing"
