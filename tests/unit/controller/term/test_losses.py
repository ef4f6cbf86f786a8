"""Who has everything that is committed, and who may have lost it: what a controller makes of that (invariant 22)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.partitions.waits import GRACE_S, MAX_PARTITIONS_NAMED
from strandline.protocol import znodes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersTopic,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionError,
)
from strandline.protocol.types import NO_BROKER, TopicPartition

TP = TopicPartition("t", 0)


# --- eligible replicas ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_another_kind", [False, True])
async def test_eligible_replicas_are_believed_unless_another_kind_of_controller_was_in_charge(
    autojump_clock: MockClock, cluster: Any, by_another_kind: bool
) -> None:
    """A real Kafka leaves the list where it changes nothing else, while its leaders go on committing."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]], min_insync_replicas="2")
    cluster.kill(3)
    await cluster.come_to_rest()
    assert (await cluster.state("t")).elr == [3]
    cluster.kill(1)
    if by_another_kind:
        epoch = await cluster.admin.get(znodes.CONTROLLER_EPOCH_PATH)
        later = znodes.ControllerEpochZnode(controller.epoch + 1)
        await cluster.admin.set(znodes.CONTROLLER_EPOCH_PATH, later.encode(), epoch.stat.version)
    await cluster.controller_on(2)
    await cluster.come_to_rest()
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.elr) == (2, [2], [] if by_another_kind else [3])
    assert list(cluster.brokers[2].roles[TP].eligible_leader_replicas) == state.elr
    if by_another_kind:  # a controller that dies in between leaves them doubtful
        judged, noted = [
            (await cluster.admin.get(path)).stat.mzxid
            for path in (znodes.PartitionStateZnode.path("t", 0), znodes.OUR_CONTROLLER_EPOCH_PATH)
        ]
        assert judged < noted


# --- every in-sync replica may have lost data ----------------------------------------------------------------------


async def lose_power(cluster: Any, **config: Any) -> Any:
    """Broker 2, the last in-sync replica of t-0 = [2, 3], comes back with a log that may lack its end."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1, **config)
    await cluster.create(controller, "t", [[2, 3]])
    await cluster.leader_writes_isr("t", 0, [2])
    await cluster.come_to_rest()
    cluster.brokers[2].log_ends[TP] = (0, 10)
    cluster.brokers[3].log_ends[TP] = (0, 15)
    return controller


@pytest.mark.parametrize("bounced", [False, True])
async def test_the_longest_log_leads_when_all_in_sync_replicas_may_have_lost_data(
    autojump_clock: MockClock, cluster: Any, bounced: bool
) -> None:
    controller = await lose_power(cluster)
    if bounced:
        cluster.zookeeper.lag(cluster.brokers[1].coordination)
    cluster.kill(2)
    if not bounced:
        await cluster.come_to_rest()
    await cluster.brokers[2].start(lossy=True)
    if bounced:
        cluster.zookeeper.catch_up(cluster.brokers[1].coordination)
    await cluster.until(lambda: TP in cluster.brokers[2].roles)
    await cluster.come_to_rest()
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (3, [3])
    assert cluster.brokers[2].roles[TP].leader == 3
    assert controller.term.context.states[TP].lossy == ()
    assert controller.counts.unclean_elections == 1
    # At no moment was the suspect told to lead.
    leaders = {
        role.leader
        for request in cluster.brokers[2].told(LeaderAndIsrRequest)
        if request.broker_epoch == cluster.brokers[2].epoch
        for topic in request.topic_states
        for role in topic.partition_states
    }
    assert 2 not in leaders


async def test_recovery_works_across_a_fail_over_as_well(autojump_clock: MockClock, cluster: Any) -> None:
    await lose_power(cluster)
    cluster.kill(1)
    cluster.kill(2)
    await cluster.brokers[2].start(lossy=True)
    await cluster.controller_on(3)
    await cluster.until(lambda: TP in cluster.brokers[2].roles)
    assert (await cluster.state("t")).leader == 3


async def test_recovery_waits_for_the_answer_of_every_live_replica(autojump_clock: MockClock, cluster: Any) -> None:
    await lose_power(cluster)
    cluster.kill(2)
    await cluster.come_to_rest()
    longest, cluster.brokers[3].gate = cluster.brokers[3], trio.Event()
    await cluster.brokers[2].start(lossy=True)
    await trio.sleep(15)
    assert (await cluster.state("t")).leader == -1
    longest.gate.set()
    await cluster.until(lambda: TP in cluster.brokers[2].roles and cluster.brokers[2].roles[TP].leader == 3)


async def test_with_strategy_none_the_partition_stays_offline(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await lose_power(cluster, unclean_recovery_strategy="none")
    cluster.kill(2)
    await cluster.come_to_rest()
    await cluster.brokers[2].start(lossy=True)
    await cluster.come_to_rest()
    assert (await cluster.state("t")).leader == -1
    assert len(controller.term.context.offline_partitions()) == 1
    assert cluster.brokers[1].metadata[TP].leader == -1


async def test_who_led_last_leads_when_nobody_has_a_log_any_more(autojump_clock: MockClock, cluster: Any) -> None:
    await lose_power(cluster)
    cluster.brokers[2].log_ends.clear()
    cluster.brokers[3].log_ends.clear()
    cluster.kill(2)
    await cluster.brokers[2].start(lossy=True)
    await cluster.until(lambda: TP in cluster.brokers[2].roles)
    await cluster.come_to_rest()
    assert (await cluster.state("t")).leader == 2


async def test_a_loss_that_was_accepted_in_vain_is_to_be_accepted_again_under_another_controller(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await lose_power(cluster)
    controller = cluster.controllers[1]
    cluster.kill(2)
    await cluster.come_to_rest()
    cluster.brokers[3].gate = trio.Event()  # it lives and says nothing
    topics = [ElectLeadersTopic("t", [0])]
    answer = await controller.ask(ElectLeadersRequest(UNCLEAN, topics, 1000, False))
    [result] = answer.replica_election_results[0].partition_result
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "say it again if another broker becomes controller" in result.error_message
    assert list(controller.term.context.accepted_losses) == [TP]
    cluster.kill(1)
    cluster.brokers[3].gate.set()
    await cluster.controller_on(3)
    await cluster.come_to_rest()
    assert (await cluster.state("t")).leader == -1


async def test_a_start_between_the_last_look_and_the_write_holds_up_its_own_partitions_only(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 2 would lead t-0, broker 3 t-1, in one transaction. 2 comes back with empty logs before that is
    written."""
    await cluster.start(1, 2, 3, 4)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[4, 2], [4, 3]])
    for partition in (0, 1):
        await cluster.leader_writes_isr("t", partition, [4])
    await cluster.come_to_rest()
    for broker, end in (4, 10), (2, 15), (3, 15):
        cluster.brokers[broker].log_ends.update({TP: (0, end), TopicPartition("t", 1): (0, end)})
    store, waves = controller.term.store, list[list[str]]()
    write_wave = store._write_wave

    async def after_a_start(changes: Any, *others: Any) -> Any:
        waves.append(sorted(f"{c.topic_partition} {c.after.leader}" for c in changes if c.unclean))
        if waves[-1] == ["t-0 2", "t-1 3"] and waves.count(waves[-1]) == 1:
            cluster.kill(2, noticed=False)
            cluster.brokers[2].log_ends.clear()
            await cluster.brokers[2].start(lossy=True)
        return await write_wave(changes, *others)

    monkeypatch.setattr(store, "_write_wave", after_a_start)
    cluster.kill(4)
    await cluster.brokers[4].start(lossy=True)
    await cluster.until(lambda: TP in cluster.brokers[4].roles)
    await cluster.come_to_rest()
    assert [wave for wave in waves if wave] == [["t-0 2", "t-1 3"], ["t-1 3"], ["t-0 4"]]
    assert [(await cluster.state("t", partition)).leader for partition in (0, 1)] == [4, 3]


# --- who is missed -------------------------------------------------------------------------------------------------


def lines(cluster: Any) -> list[Any]:
    return [entry for entry in cluster.logs.entries if entry["event"] == "partitions stay offline"]


async def test_partitions_that_wait_for_long_share_a_line_that_names_a_few_and_all_who_are_missed(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2]] * 40 + [[3]] * 40)
    waits = controller.term.duties.waits
    cluster.kill(2)
    cluster.kill(3)
    await cluster.come_to_rest()
    assert waits.why(TP) == "one of the brokers 2 must come back: only they have all that was acknowledged"
    assert lines(cluster) == []
    await trio.sleep(3 * GRACE_S)
    [line] = lines(cluster)
    assert (line["log_level"], line["count"], line["brokers"]) == ("error", 80, [2, 3])
    assert list(line["first"]) == [f"t-{number}" for number in range(MAX_PARTITIONS_NAMED)]
    assert line["first"]["t-0"] == waits.why(TP)
    await cluster.brokers[3].start()
    await cluster.come_to_rest()
    assert waits.why(TopicPartition("t", 79)) is None
    cluster.kill(3)
    await trio.sleep(3 * GRACE_S)
    assert [(line["count"], line["brokers"]) for line in lines(cluster)[1:]] == [(40, [3])]


async def test_nothing_is_said_of_who_came_back_in_time_nor_after_the_term(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2], [3]])
    cluster.kill(2)
    await trio.sleep(GRACE_S / 2)
    await cluster.brokers[2].start()
    cluster.kill(3)
    await trio.sleep(GRACE_S)
    cluster.kill(1)
    await trio.sleep(3 * GRACE_S)
    assert lines(cluster) == []


async def test_a_state_that_is_older_than_a_log_elects_nobody_until_that_log_is_served(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """Whom it names in sync may lack what that log has, and each election would bring it nearer to that log's epoch."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)

    def refuse(request: Any) -> Any:
        if not isinstance(request, LeaderAndIsrRequest):
            return None
        return LeaderAndIsrResponse(0, [PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, "it is later", 1)])

    cluster.brokers[3].script = refuse
    await cluster.create(controller, "t", [[2, 3, 1]])
    await cluster.come_to_rest()
    before = await cluster.state("t")
    assert (before.leader, before.leader_epoch) == (2, 0) and cluster.brokers[1].metadata[TP].offline_replicas == [3]
    for broker_id in (3, 2):  # it is not forgotten with its broker
        cluster.kill(broker_id)
    await trio.sleep(60)
    assert await cluster.state("t") == before and cluster.brokers[1].metadata[TP].leader == NO_BROKER
    assert "brokers 3 have logs with later leader epochs" in controller.term.duties.waits.why(TP)
    cluster.brokers[3].script = lambda request: None
    await cluster.brokers[3].start()
    await cluster.until(lambda: cluster.brokers[1].metadata[TP].leader == 3)
