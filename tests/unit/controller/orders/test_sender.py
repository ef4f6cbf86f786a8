"""What a broker is told: orders that merge, and the sender that says them until they are heard."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from strandline.broker.metadata_cache import MetadataCache
from strandline.controller.controller_context import ControllerContext, LeaderAndIsr, LiveBroker, Topic
from strandline.controller.orders import broker_orders
from strandline.controller.orders.broker_orders import BrokerOrders, ClusterWide, OrderBuilder, requests_of
from strandline.controller.orders.channel import BrokerUnreachable, connector
from strandline.controller.orders.sender import BrokerSender
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    LEADER_EPOCH_TOPIC_DELETED,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    Message,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    Request,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import BrokerEndpoint
from strandline.runtime.network import Address, CannotConnect

TP = TopicPartition("t", 0)


def live_broker(broker_id: int) -> LiveBroker:
    endpoint = BrokerEndpoint("PLAINTEXT", "host", 9000 + broker_id)
    return LiveBroker(broker_id, 100 + broker_id, (endpoint,), Address("host", 9000 + broker_id), f"rack-{broker_id}")


LIVE = ClusterWide(tuple(map(live_broker, (1, 2, 3))))


def two_replicas(leader_epoch: int = 3) -> ControllerContext:
    context = ControllerContext(epoch=5)
    context.brokers = {b: live_broker(b) for b in (1, 2, 3)}
    context.topics = {"t": Topic("t", b"i" * 16, {0: (1, 2)})}
    context.states = {TP: LeaderAndIsr(1, leader_epoch, (1, 2), 5, 8)}
    return context


def all_of(orders: BrokerOrders, metadata_first: bool = False) -> list[Request]:
    return list(
        requests_of(
            orders,
            controller_id=1,
            controller_epoch=5,
            broker_epoch=102,
            cluster_wide=LIVE,
            metadata_first=metadata_first,
            now_us=1,
        )
    )


def metadata_of(orders: BrokerOrders) -> list[UpdateMetadataRequest]:
    return [request for request in all_of(orders) if isinstance(request, UpdateMetadataRequest)]


# --- orders --------------------------------------------------------------------------------------------------------


def test_replicas_hear_of_leadership_and_everybody_of_metadata() -> None:
    builder = OrderBuilder(two_replicas())
    builder.leadership([TP])
    builder.metadata([TP])
    assert [b for b, orders in builder.by_broker.items() if orders.leader_and_isr] == [1, 2]
    assert [b for b, orders in builder.by_broker.items() if orders.metadata] == [1, 2, 3]
    role, metadata = all_of(builder.by_broker[2])
    assert isinstance(role, LeaderAndIsrRequest) and isinstance(metadata, UpdateMetadataRequest)
    assert (role.controller_id, role.controller_epoch, role.broker_epoch) == (1, 5, 102)
    assert [(leader.broker_id, leader.port) for leader in role.live_leaders] == [(1, 9001)]
    assert [(b.id, b.endpoints[0].port, b.rack) for b in metadata.live_brokers] == [
        (1, 9001, "rack-1"),
        (2, 9002, "rack-2"),
        (3, 9003, "rack-3"),
    ]


def test_metadata_goes_first_to_whom_hears_something_for_the_first_time() -> None:
    builder = OrderBuilder(two_replicas())
    builder.leadership([TP])
    builder.metadata([TP])
    kinds = [type(request) for request in all_of(builder.by_broker[2], metadata_first=True)]
    assert kinds == [UpdateMetadataRequest, LeaderAndIsrRequest]


def test_a_first_word_begins_with_all_topics_and_ends_with_that_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came since it was begun is not among all topics, and stays: it is told behind them."""
    monkeypatch.setattr(broker_orders, "MAX_PARTITIONS_PER_REQUEST", 2)
    context = two_replicas()
    first = OrderBuilder(context)
    first.metadata([TP])
    first.all_topics(2, ["unreadable"])
    context.topics["new"] = Topic("new", b"j" * 16, dict.fromkeys(range(3), (1, 2)))
    later = OrderBuilder(context)
    for number in range(3):
        context.states[TopicPartition("new", number)] = LeaderAndIsr(1, 0, (1, 2), 5, 0)
    later.metadata(context.partitions(["new"]))
    orders = first.by_broker[2]
    orders.add(later.by_broker[2])
    cache = MetadataCache()
    told = metadata_of(orders)
    for request in told:
        cache.update(request)
    assert [(request.all_topics, request.has_told_all) for request in told] == [
        (["t", "unreadable"], False),
        (None, True),
    ]
    assert sorted(cache.topics["new"].partitions) == [0, 1, 2]
    assert [request.has_told_all for request in metadata_of(later.by_broker[2])] == [False, False]


def test_the_list_of_live_brokers_goes_out_even_without_partitions() -> None:
    builder = OrderBuilder(two_replicas())
    builder.live_brokers()
    [request] = all_of(builder.by_broker[3])
    assert isinstance(request, UpdateMetadataRequest) and request.topic_states == []


def test_a_newer_word_replaces_an_older_one() -> None:
    older, newer = OrderBuilder(two_replicas(3)), OrderBuilder(two_replicas(4))
    older.leadership([TP])
    newer.leadership([TP])
    orders = older.by_broker[2]
    orders.add(newer.by_broker[2])
    [request] = all_of(orders)
    assert isinstance(request, LeaderAndIsrRequest)
    [state] = request.topic_states[0].partition_states
    assert state.leader_epoch == 4


def test_a_deletion_cancels_the_role_that_waits_and_a_new_role_cancels_a_stop() -> None:
    role, stop = OrderBuilder(two_replicas()), OrderBuilder(two_replicas())
    role.leadership([TP])
    stop.stop(2, [TP], delete=True)
    orders = BrokerOrders()
    orders.add(role.by_broker[2])
    orders.add(stop.by_broker[2])
    assert [type(request) for request in all_of(orders)] == [StopReplicaRequest]
    orders.add(role.by_broker[2])
    assert [type(request) for request in all_of(orders)] == [LeaderAndIsrRequest]


def test_the_log_of_an_earlier_topic_goes_before_the_one_of_that_name_begins() -> None:
    """A replica was moved away, and its broker has not heard of it yet when the topic is made anew, and deleted, and
    made anew again."""
    orders = BrokerOrders()
    for topic_id in (b"1" * 16, b"2" * 16, b"3" * 16):
        context = two_replicas()
        context.topics = {"t": Topic("t", topic_id, {0: (1, 2)})}
        role, stop = OrderBuilder(context), OrderBuilder(context)
        role.leadership([TP])
        orders.add(role.by_broker[2])
        if topic_id != b"3" * 16:
            stop.stop(2, [TP], delete=True)
            orders.add(stop.by_broker[2])
    for metadata_first in (True, False):
        stops, role_of_the_last = all_of(orders, metadata_first)
        assert isinstance(stops, StopReplicaRequest) and isinstance(role_of_the_last, LeaderAndIsrRequest)
        assert [state.topic_id for state in stops.partition_states] == [b"1" * 16, b"2" * 16]
        assert [topic.topic_id for topic in role_of_the_last.topic_states] == [b"3" * 16]


@pytest.mark.parametrize(
    ("deleting", "delete", "epoch"), [(False, False, 3), (False, True, 3), (True, True, LEADER_EPOCH_TOPIC_DELETED)]
)
def test_a_stop_is_of_the_partitions_epoch_unless_its_whole_topic_goes(
    deleting: bool, delete: bool, epoch: int
) -> None:
    context = two_replicas(3)
    context.deleting = {"t": None} if deleting else {}
    builder = OrderBuilder(context)
    builder.stop(2, [TP], delete=delete)
    builder.stop(9, [TP], delete=delete)
    assert list(builder.by_broker) == [2], "nobody says anything to a broker that is not there"
    [request] = all_of(builder.by_broker[2])
    assert isinstance(request, StopReplicaRequest)
    [state] = request.partition_states
    assert (state.leader_epoch, state.delete_partition) == (epoch, delete)


def test_a_topic_that_is_being_deleted_is_announced_as_such_and_gets_no_roles() -> None:
    context = two_replicas()
    context.deleting = {"t": None}
    builder = OrderBuilder(context)
    builder.leadership([TP])
    builder.metadata([TP])
    [request] = all_of(builder.by_broker[1])
    assert isinstance(request, UpdateMetadataRequest)
    assert request.topic_states[0].partition_states[0].leader == LEADER_DURING_DELETE


def test_a_leader_on_a_dead_broker_is_announced_as_none() -> None:
    context = two_replicas()
    del context.brokers[1]
    builder = OrderBuilder(context)
    builder.metadata([TP])
    _, state = builder.by_broker[2].metadata[TP]
    assert (state.leader, state.offline_replicas) == (-1, [1])


# --- the sender ----------------------------------------------------------------------------------------------------


class Peer:
    """A broker that answers all is well, unless told otherwise."""

    def __init__(self) -> None:
        self.heard: list[Request] = []
        self.failures: list[Exception] = []
        self.codes: list[ErrorCode] = []
        self.may_send = True
        self.responses: list[Message] = []
        self.closed = 0

    async def connect(self, broker: LiveBroker) -> Peer:
        await trio.lowlevel.checkpoint()
        assert (broker.inter_broker.port, broker.broker_id) == (9002, 2)
        return self

    async def request(self, message: Request) -> Message:
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop(0)
        self.heard.append(message)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if isinstance(message, UpdateMetadataRequest):
            return UpdateMetadataResponse(code)
        if isinstance(message, OffsetForLeaderEpochRequest):
            return OffsetForLeaderEpochResponse([])
        return (
            LeaderAndIsrResponse(code, [])
            if isinstance(message, LeaderAndIsrRequest)
            else StopReplicaResponse(code, [])
        )

    async def until_broken(self) -> None:
        await trio.sleep_forever()

    def close(self) -> None:
        self.closed += 1

    def sender(self) -> BrokerSender:
        return BrokerSender(
            live_broker(2),
            controller_id=1,
            controller_epoch=5,
            connect=self.connect,
            timeout_ms=1000,
            may_send=lambda: self.may_send,
            on_response=lambda broker, request, response: self.responses.append(response),
            on_told=lambda: None,
            log=structlog.wrap_logger(structlog.testing.CapturingLogger()),
        )


def orders_of(leader_epoch: int) -> BrokerOrders:
    builder = OrderBuilder(two_replicas(leader_epoch))
    builder.leadership([TP])
    return builder.by_broker[2]


async def test_orders_are_repeated_until_they_are_answered_and_merged_with_what_came_meanwhile(
    autojump_clock: MockClock,
) -> None:
    peer = Peer()
    peer.failures = [BrokerUnreachable("refused"), trio.TooSlowError()]
    sender = peer.sender()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        sender.put(orders_of(3), LIVE)
        await trio.sleep(0.05)
        sender.put(orders_of(4), LIVE)
        assert sender.told == 0
        await trio.sleep(1)
        assert sender.told == sender.enqueued == 2
        nursery.cancel_scope.cancel()
    [request] = peer.heard
    assert isinstance(request, LeaderAndIsrRequest)
    assert request.topic_states[0].partition_states[0].leader_epoch == 4
    assert sender.closed and peer.closed >= 2


async def test_what_comes_while_a_request_is_on_its_way_is_not_lost_when_that_fails(autojump_clock: MockClock) -> None:
    peer, reached, release = Peer(), trio.Event(), trio.Event()
    sender = peer.sender()
    answer = peer.request

    async def slow(message: Request) -> Message:
        if not release.is_set():
            reached.set()
            await release.wait()
            raise BrokerUnreachable("lost on the way")
        return await answer(message)

    peer.request = slow
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        sender.put(orders_of(3), LIVE)
        await reached.wait()
        sender.put(orders_of(4), LIVE)
        release.set()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    [request] = peer.heard
    assert isinstance(request, LeaderAndIsrRequest)
    assert request.topic_states[0].partition_states[0].leader_epoch == 4


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_a_request_that_was_refused_as_a_whole_is_repeated(autojump_clock: MockClock, code: ErrorCode) -> None:
    peer = Peer()
    peer.codes = [code, code]
    sender = peer.sender()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        sender.put(orders_of(3), LIVE)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert len(peer.heard) == 3
    assert len(peer.responses) == 1


async def test_nothing_more_is_sent_after_a_stale_controller_epoch(autojump_clock: MockClock) -> None:
    peer = Peer()
    peer.codes = [ErrorCode.STALE_CONTROLLER_EPOCH]
    sender = peer.sender()
    sender.put(orders_of(3), LIVE)
    await sender.run()  # ends by itself
    assert sender.closed
    assert [response.error_code for response in peer.responses] == [ErrorCode.STALE_CONTROLLER_EPOCH]  # type: ignore[attr-defined]


async def test_nothing_is_sent_while_it_may_not(autojump_clock: MockClock) -> None:
    peer = Peer()
    peer.may_send = False
    sender = peer.sender()
    sender.put(orders_of(3), LIVE)
    await sender.run()
    assert peer.heard == []


async def test_a_question_is_answered_or_fails_with_the_broker(autojump_clock: MockClock) -> None:
    peer = Peer()
    peer.failures = [BrokerUnreachable("once")]
    sender = peer.sender()
    question = OffsetForLeaderEpochRequest([])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        assert await sender.ask(question) == OffsetForLeaderEpochResponse([])
        peer.failures = [BrokerUnreachable("down")] * 100
        nursery.start_soon(close_soon, sender)
        with pytest.raises(BrokerUnreachable):
            await sender.ask(question)
        with pytest.raises(BrokerUnreachable):
            await sender.ask(question)


async def test_a_question_that_is_refused_holds_up_nothing_and_goes_with_who_asked(autojump_clock: MockClock) -> None:
    peer, refused = Peer(), OffsetForLeaderEpochRequest([], replica_id=7)
    sender = peer.sender()
    answer, asked = peer.request, 0

    async def refuse(message: Request) -> Message:
        nonlocal asked
        if message == refused:
            asked += 1
            raise BrokerUnreachable("that request closes the connection")
        return await answer(message)

    peer.request = refuse

    async def ask_in_vain() -> None:
        with trio.move_on_after(5):
            await sender.ask(refused)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        nursery.start_soon(ask_in_vain)
        await trio.sleep(1)
        sender.put(orders_of(3), LIVE)
        with trio.fail_after(3):
            assert await sender.ask(OffsetForLeaderEpochRequest([])) == OffsetForLeaderEpochResponse([])
        assert sender.told == sender.enqueued
        await trio.sleep(10)
        before = asked
        await trio.sleep(10)
        assert asked == before > 1
        nursery.cancel_scope.cancel()


async def close_soon(sender: BrokerSender) -> None:
    await trio.sleep(1)
    sender.close()


async def test_the_production_channel_speaks_of_unreachable_brokers() -> None:
    class NoNetwork:
        async def connect(self, address: Address) -> Any:
            raise CannotConnect(f"{address}: connection refused")

    connect = connector(NoNetwork(), client_id="controller-1", timeout_ms=1000)
    with pytest.raises(BrokerUnreachable, match=r"broker 2 at host:9002.*refused"):
        await connect(LiveBroker(2, 102, (), Address("host", 9002)))
