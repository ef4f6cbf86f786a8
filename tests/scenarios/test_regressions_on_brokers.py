"""Scripted regressions on whole brokers: fixed schedules of faults that lost data, or the cluster, elsewhere.

Truncation (KIP-101), incarnations (KIP-903), a controller of the past, answers that are lost, sessions that end twice,
and states that another hand wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
import trio

from strandline.broker.network.request import RequestInHand
from strandline.client import TrioProducer
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import Message
from strandline.protocol.znodes import CONTROLLER_PATH, BrokerIdZnode, BrokerIncarnationZnode, PartitionStateZnode
from strandline.runtime.coordination import Operation, SetData
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.inspection import Ledger, values
from support.scenario import LAG_TIME_MAX_S, T0, check_at_the_end, cluster_with_topic, numbered

STATE_PATH = PartitionStateZnode.path(*T0)


def writes_the_state(operations: Sequence[Operation]) -> bool:
    return any(isinstance(operation, SetData) and operation.path == STATE_PATH for operation in operations)


def record_orders(cluster: MemoryCluster, broker_id: int, orders: list[tuple[float, int]]) -> None:
    """Note (time, controller epoch) of every order that reaches this broker from now on, obeyed or not."""
    handlers = cluster.broker(broker_id).channel._handlers
    for api_key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA):

        async def noted(request: RequestInHand, handle=handlers[api_key]) -> Message:
            orders.append((trio.current_time(), request.message.controller_epoch))
            return await handle(request)

        handlers[api_key] = noted


async def produce_and_learn(cluster: MemoryCluster, ledger: Ledger, producer, follower: int) -> None:
    """m1 is acked and the follower knows it; m2 is acked and the follower, which has it, does not know that yet."""
    await ledger.produce(producer, T0, [b"m1"])
    await cluster.until(lambda: cluster.partition(follower, T0).high_watermark == 1, "m1 is known to be committed")
    await ledger.produce(producer, T0, [b"m2"])
    behind = cluster.partition(follower, T0)
    assert (behind.log.log_end_offset, behind.high_watermark) == (2, 1), "the schedule needs a lagging high watermark"


# --- the high watermark is not where a log is cut (KAFKA-1211) --------------------------------------------------------


async def test_r1_a_follower_that_restarts_keeps_what_it_has_above_its_high_watermark(autojump_clock) -> None:
    """B leads, A holds m2 but does not know that it is committed; A restarts, B dies before A's next fetch returns."""
    a, b = 3, 2
    async with cluster_with_topic([b, a], min_insync_replicas=1) as (cluster, producer, ledger):
        await produce_and_learn(cluster, ledger, producer, a)
        controller = cluster.coordination(1).client
        cluster.zookeeper.hold(controller)  # it finds both deaths at once: A stays in the ISR
        cluster.cut_both(a, b)
        cluster.crash(a)
        await cluster.start_broker(a)
        cluster.crash(b)
        cluster.expire_session(b)
        cluster.zookeeper.heal(controller)
        await cluster.until(lambda: cluster.leader(T0) == a, "A is elected")
        await cluster.until(lambda: cluster.leads(a, T0), "A leads")
        assert values(cluster.partition(a, T0).log) == [b"m1", b"m2"]
        await cluster.start_broker(b)
        cluster.heal(a, b)
        await check_at_the_end(cluster, ledger, [a, b])


async def test_r1_a_follower_that_learns_of_a_new_epoch_keeps_what_it_has_above_its_high_watermark(
    autojump_clock,
) -> None:
    """The same without a restart: another follower's death raises the epoch, A follows anew, B dies, A is elected."""
    b, a, c = 2, 3, 4
    async with cluster_with_topic([b, a, c], brokers=4) as (cluster, producer, ledger):
        await produce_and_learn(cluster, ledger, producer, a)
        cluster.cut_both(a, b)
        cluster.crash(c)
        cluster.expire_session(c)
        await cluster.until(lambda: cluster.partition(a, T0).leader_epoch == 1, "A follows in the next epoch")
        assert cluster.isr(T0) == [b, a]
        cluster.crash(b)
        cluster.expire_session(b)
        await cluster.until(lambda: cluster.leads(a, T0), "A leads")
        assert values(cluster.partition(a, T0).log) == [b"m1", b"m2"]
        await cluster.start_broker(b)
        await cluster.start_broker(c)
        cluster.heal(a, b)
        await check_at_the_end(cluster, ledger, [a, b, c])


# --- logs that part ways come together again --------------------------------------------------------------------------


async def test_r2_who_returns_with_another_record_at_the_same_offset_is_cut_to_the_leaders_log(autojump_clock) -> None:
    """Both lose power; B comes back shorter and, the operator allowing it, leads; m3 stands where A has m2."""
    a, b = 2, 3
    allowed = {"unclean.leader.election.enable": "true"}
    async with cluster_with_topic([a, b], min_insync_replicas=1, configs=allowed) as (cluster, producer, _):
        ledger = Ledger()
        await ledger.produce(producer, T0, [b"m1"])
        for node in (a, b):
            cluster.nodes[node].disk.sync_everything()
        await Ledger().produce(producer, T0, [b"m2"])
        cluster.nodes[a].disk.sync_everything()
        cluster.lose_power(a)
        cluster.lose_power(b)
        await cluster.until(lambda: cluster.registered() == [1], "both are missed")
        await cluster.start_broker(b)
        await cluster.until(lambda: cluster.leads(b, T0), "B leads")
        assert values(cluster.partition(b, T0).log) == [b"m1"]
        await ledger.produce(producer, T0, [b"m3"])
        await cluster.start_broker(a)
        await check_at_the_end(cluster, ledger, [a, b])
        assert values(cluster.partition(a, T0).log) == values(cluster.partition(b, T0).log) == [b"m1", b"m3"]


async def test_r2_a_leader_that_wrote_what_nobody_got_is_cut_to_its_successors_log(autojump_clock) -> None:
    """The same within the rules: A wrote m2 for acks=1 and died before anybody fetched it."""
    a, b = 2, 3
    async with cluster_with_topic([a, b, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, [b"m1"])
        cluster.cut_both(a, b)
        cluster.cut_both(a, 1)
        async with cluster.producer(acks=1, linger_ms=0) as careless:
            await Ledger().produce(careless, T0, [b"m2"])
        cluster.crash(a)
        await ledger.produce(producer, T0, [b"m3"])
        cluster.network.heal()
        await cluster.start_broker(a)
        await check_at_the_end(cluster, ledger)
        assert values(cluster.partition(a, T0).log) == [b"m1", b"m3"]


# --- what a past life of a broker had fetched (KIP-903) ---------------------------------------------------------------


async def test_r8_who_returns_with_an_empty_disk_does_not_join_by_what_its_past_life_had(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1], min_insync_replicas=1) as (cluster, producer, ledger):
        cluster.crash(3)
        await ledger.produce(producer, T0, numbered("without", 5))
        assert cluster.isr(T0) == [1, 2]
        held = cluster.coordination(2).hold_writes(writes_the_state)
        await cluster.start_broker(3)
        await held.reached.wait()  # it has caught up, and is about to join
        cluster.crash(3)
        cluster.expire_session(3)
        cluster.nodes[3].disk = MemoryDisk()
        cluster.cut_both(2, 3)
        await cluster.start_broker(3)
        await trio.sleep(1)
        version = cluster.state_version(T0)
        held.release()
        await trio.sleep(3)
        assert (cluster.isr(T0), cluster.state_version(T0)) == ([1, 2], version)
        cluster.network.heal()
        await check_at_the_end(cluster, ledger)


# --- a controller of the past -----------------------------------------------------------------------------------------


async def depose(cluster: MemoryCluster, old: int) -> None:
    """/controller vanishes (an operator's hand) while `old` hears nothing of ZooKeeper; somebody else is elected."""
    operator = cluster.zookeeper.client()
    await operator.start()
    await operator.delete(CONTROLLER_PATH)
    await operator.close()
    await cluster.until(lambda: cluster.controller_id not in (-1, old), "another controller")


async def test_r9_a_controller_that_slept_between_deciding_and_writing_writes_nothing(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        held = cluster.coordination(1).hold_writes(writes_the_state)
        cluster.crash(2)
        cluster.expire_session(2)
        await held.reached.wait()  # it has computed who leads
        client = cluster.coordination(1).client
        cluster.zookeeper.hold(client)
        await depose(cluster, 1)
        await cluster.until(lambda: cluster.leader(T0) == 3, "the new controller has elected")
        decided, version = cluster.state(T0), cluster.state_version(T0)
        orders: list[tuple[float, int]] = []
        record_orders(cluster, 3, orders)
        record_orders(cluster, 1, orders)
        old = cluster.broker(1).controller
        assert old.is_active, "it does not know"
        held.release()
        cluster.zookeeper.heal(client)
        await cluster.until(lambda: not old.is_active, "it resigns")
        resigned_at = trio.current_time()
        await trio.sleep(5)
        assert (cluster.state(T0), cluster.state_version(T0)) == (decided, version)
        assert not [order for order in orders if order[0] > resigned_at and order[1] == 1], "it says nothing more"
        assert cluster.controller_id == 3
        await cluster.start_broker(2)
        await check_at_the_end(cluster, ledger)


async def test_r9_a_controller_that_slept_cannot_write_even_where_nobody_else_wrote(autojump_clock) -> None:
    """What it decided is out of date, yet the state's version still fits: only the controller's epoch tells."""
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        held = cluster.coordination(1).hold_writes(writes_the_state)
        version = cluster.state_version(T0)
        cluster.crash(3)
        cluster.expire_session(3)
        await held.reached.wait()  # broker 3 is to leave the ISR
        client = cluster.coordination(1).client
        cluster.zookeeper.hold(client)
        await cluster.start_broker(3)
        await depose(cluster, 1)
        assert (cluster.isr(T0), cluster.state_version(T0)) == ([1, 2, 3], version), "nobody else had a reason to write"
        old = cluster.broker(1).controller
        assert old.is_active, "it does not know"
        held.release()
        cluster.zookeeper.heal(client)
        await cluster.until(lambda: not old.is_active, "it resigns")
        await trio.sleep(5)
        assert (cluster.isr(T0), cluster.state_version(T0)) == ([1, 2, 3], version)
        await ledger.produce(producer, T0, numbered("after", 3))
        await check_at_the_end(cluster, ledger)


async def test_r9_an_order_of_a_deposed_controller_is_refused_and_tells_it(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        cluster.cut(1, 3)
        async with cluster.admin(request_timeout_ms=500, default_api_timeout_ms=500) as admin:
            with pytest.raises(Exception, match=r"not done within|did not answer|timed out|is being created"):
                await admin.create_topic("u", assignments={0: [3, 2]})  # its orders to broker 3 are on their way
        cluster.zookeeper.hold(cluster.coordination(1).client)
        await depose(cluster, 1)
        epoch = cluster.broker(cluster.controller_id).controller.epoch
        await cluster.until(
            lambda: cluster.broker(3).data.replicas.controller_epoch == epoch, "broker 3 obeys the new one"
        )
        old = cluster.broker(1).controller
        assert old.is_active, "it does not know"
        cluster.network.heal()
        await cluster.until(lambda: not old.is_active, "it is told by broker 3", within_s=3)
        assert cluster.broker(3).data.replicas.controller_epoch == epoch
        cluster.zookeeper.heal(cluster.coordination(1).client)
        await ledger.produce(producer, T0, numbered("after", 3))
        await check_at_the_end(cluster, ledger)


# --- the answer to a conditional write is lost ------------------------------------------------------------------------


async def shrink(cluster: MemoryCluster, leader: int, follower: int) -> None:
    cluster.cut_both(leader, follower)
    await cluster.until(lambda: follower not in cluster.isr(T0), "out of the ISR", within_s=4 * LAG_TIME_MAX_S)


@pytest.mark.parametrize("lost", [STATE_PATH, BrokerIncarnationZnode.path(3)], ids=["of a shrink", "of an expansion"])
async def test_r12_after_a_lost_answer_later_isr_changes_still_succeed(lost: str, autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        cluster.zookeeper.drop_next_reply(lost)
        for round_ in range(2):
            load = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_keep_writing, ledger, producer, f"round-{round_}", load)
                await shrink(cluster, 2, 3)
                load.set()
            cluster.heal(2, 3)
            await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "back in the ISR")
        leadership = cluster.partition(2, T0).leadership
        assert leadership is not None and not leadership.frozen
        await cluster.until(
            lambda: leadership.proposal is None and leadership.zk_version == cluster.state_version(T0),
            "the leader knows what ZooKeeper has",
        )
        assert sorted(leadership.isr) == cluster.isr(T0)
        assert cluster.state(T0).leader_epoch == 0, "nobody was elected meanwhile"
        await check_at_the_end(cluster, ledger)


async def _keep_writing(ledger: Ledger, producer, prefix: str, enough: trio.Event) -> None:
    number = 0
    while not enough.is_set():
        await ledger.produce(producer, T0, [f"{prefix}-{number}".encode()])
        number += 1
        await trio.sleep(0.2)


async def test_r12_a_repeated_write_does_not_undo_what_the_controller_wrote_meanwhile(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        held = cluster.coordination(2).hold_writes(writes_the_state)
        cluster.cut_both(2, 3)
        async with cluster.producer(acks=1, linger_ms=0) as careless:
            await Ledger().produce(careless, T0, [b"keeps broker 3 from being caught up"])
        await held.reached.wait()  # the leader wants broker 3 out
        cluster.network.isolate("broker-2")
        cluster.cut_from_zookeeper(2)
        await cluster.until(lambda: cluster.leader(T0) in (1, 3), "another leader")
        await trio.sleep(3)
        decided, version = cluster.state(T0), cluster.state_version(T0)
        cluster.heal_zookeeper(2)
        await cluster.until(lambda: cluster.registered() == [1, 2, 3], "registered again")
        held.release()
        await trio.sleep(3)
        assert (cluster.state(T0), cluster.state_version(T0)) == (decided, version)
        leadership = cluster.partition(2, T0).leadership
        assert leadership is not None and leadership.frozen, "it keeps its union and waits to be told"
        cluster.network.heal()
        await cluster.until(lambda: not cluster.leads(2, T0), "it learns of its successor")
        await check_at_the_end(cluster, ledger)


# --- what another hand writes ----------------------------------------------------------------------------------------


async def test_a_member_that_is_no_replica_leaves_the_isr_and_ends_no_broker(autojump_clock) -> None:
    """The leader meets it when it wants to remove a follower."""
    async with cluster_with_topic([2, 1, 3], brokers=4) as (cluster, producer, ledger):
        operator = cluster.zookeeper.client()
        await operator.start()
        state = msgspec.structs.replace(cluster.state(T0), isr=[2, 1, 3, 4])
        await operator.set(STATE_PATH, state.encode(), cluster.state_version(T0))
        await operator.close()
        await shrink_while_written_to(cluster, producer, ledger)
        assert all(node.is_up for node in cluster.nodes.values())
        cluster.heal(2, 3)
        await check_at_the_end(cluster, ledger)


async def shrink_while_written_to(cluster: MemoryCluster, producer: TrioProducer, ledger: Ledger) -> None:
    cluster.cut_both(2, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledger.produce, producer, T0, numbered("meanwhile", 3))
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "who cannot fetch and who is no replica are out")


# --- the session dies again while registering -------------------------------------------------------------------------


@pytest.mark.parametrize("lingers", [False, True], ids=["its znode vanishes", "its znode lingers"])
async def test_r14_a_session_that_dies_while_registering_leaves_one_registration(lingers: bool, autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        path = BrokerIdZnode.path(2)
        cluster.zookeeper.drop_next_reply(path)
        first = cluster.coordination(2).session_id
        cluster.zookeeper.expire(first)

        def owner() -> int:
            stat = cluster.zookeeper.tree.exists(path)
            return stat.ephemeral_owner if stat is not None else 0

        await cluster.until(lambda: owner() not in (0, first), "registered, and the answer is lost")
        second = owner()
        if lingers:
            cluster.zookeeper.forget_session(cluster.coordination(2).client)
        else:
            cluster.zookeeper.expire(second)
        await cluster.until(lambda: owner() not in (0, first, second), "registered for good")
        await trio.sleep(15)  # the second session times out, whatever it left
        assert owner() == cluster.coordination(2).session_id
        stat = cluster.zookeeper.tree.exists(path)
        assert stat is not None and cluster.broker(2).registration.broker_epoch == stat.czxid
        assert cluster.registered() == [1, 2, 3]
        await ledger.produce(producer, T0, numbered("after", 3))
        await check_at_the_end(cluster, ledger)


# --- A topic is made anew under its name ------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [[1, 3], [3, 2]], ids=["the leader is no replica any more", "it still is one"])
async def test_a_late_isr_write_spares_the_topic_that_was_made_anew(replicas: list[int], autojump_clock) -> None:
    """The new topic's state has the very version that the old leader knows: 0."""
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, _):
        held = cluster.coordination(2).hold_writes(writes_the_state)
        cluster.cut_both(2, 3)
        async with cluster.producer(acks=1, linger_ms=0) as careless:
            await Ledger().produce(careless, T0, [b"keeps broker 3 from being caught up"])
        await held.reached.wait()
        cluster.heal(2, 3)
        async with cluster.admin() as admin:
            await admin.delete_topic(T0.topic)
            await admin.create_topic(T0.topic, assignments={0: replicas})
        await cluster.until(lambda: cluster.leads(replicas[0], T0), "the new topic is led")
        decided = cluster.state(T0)
        assert cluster.state_version(T0) == 0, "the schedule needs a state that nobody has changed yet"
        held.release()
        await trio.sleep(3)
        assert (cluster.state(T0), cluster.state_version(T0)) == (decided, 0)
        async with cluster.producer(linger_ms=0, request_timeout_ms=2_000) as producer:
            ledger = Ledger()
            await ledger.produce(producer, T0, numbered("of the new topic", 3))
        await check_at_the_end(cluster, ledger, replicas)
