"""Orders of the controller and questions to it: fencing by broker epoch, topic configurations, asking, leaving."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.broker.admin.topic_configs import TopicConfigs
from strandline.broker.handlers.control import REMOVALS_PER_STEP, ControlHandlers
from strandline.broker.handlers.creations import MAX_CREATIONS, NAMES_PER_REQUEST, REQUESTS_AT_A_TIME
from strandline.broker.membership.registration import Registration
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_bounds import PARTITIONS_PER_STEP
from strandline.broker.replication.role_changes import LOGS_PER_STEP
from strandline.client.errors import CannotReachBroker
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    ApiVersion,
    ApiVersionsResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    Message,
    Request,
    StopReplicaPartitionState,
    StopReplicaRequest,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import ConfigZnode
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.values import INT_MAX
from strandline.runtime.coordination import ConnectionLost
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from support.pipeline import open_pipeline
from support.replica_site import T0, TOPIC_ID, Hand, ReplicaSite, in_hand

MY_EPOCH = 77


class Plane:
    """A controller by script: what it was asked, and what it answers to controlled shutdowns, one after another."""

    def __init__(self) -> None:
        self.is_active = True
        self.asked: list[Any] = []
        self.shutdown_answers: list[ControlledShutdownResponse | BrokerError] = []
        self.create_gate = trio.Event()
        self.create_gate.set()
        self.bug: Exception | None = None

    def created(self) -> list[list[str]]:
        """The names of each CreateTopics request so far."""
        return [[topic.name for topic in asked.topics] for asked in self.asked]

    async def ask(self, request: Request) -> Message:
        self.asked.append(request)
        if isinstance(request, ControlledShutdownRequest):
            answer = self.shutdown_answers.pop(0) if self.shutdown_answers else ControlledShutdownResponse(0, [])
            if isinstance(answer, BrokerError):
                raise answer
            return answer
        assert isinstance(request, CreateTopicsRequest)
        if self.bug is not None:
            raise self.bug
        await self.create_gate.wait()
        return CreateTopicsResponse([CreatableTopicResult(topic.name, 0) for topic in request.topics])


class Broker:
    def __init__(self, client: MemoryCoordination) -> None:
        self.client = client
        self.site = ReplicaSite(config={"controlled.shutdown.retry.backoff.ms": "500"})
        self.plane = Plane()
        self.registration = SimpleNamespace(broker_epoch=MY_EPOCH)
        self.topic_configs = TopicConfigs(CurrentConfig(self.site.config), client, self.site.log)
        self.control = ControlHandlers(
            self.site.config,
            self.site.environment,
            self.topic_configs,
            self.site.replicas,
            self.site.roles,
            cast(Registration, self.registration),
            self.plane,
            self.site.log,
        )

    async def lead(self, *, broker_epoch: int = MY_EPOCH, topic_id: bytes = TOPIC_ID, epoch: int = 0) -> Any:
        topic = LeaderAndIsrTopicState("t", topic_id, [self.site.state(epoch=epoch)])
        return await self.control.leader_and_isr(in_hand(Hand(LeaderAndIsrRequest(9, 1, broker_epoch, [topic], []))))

    async def stop(self, partition: int = 0, *, broker_epoch: int = MY_EPOCH) -> Any:
        state = StopReplicaPartitionState("t", TOPIC_ID, partition, 0, True)
        return await self.control.stop_replica(in_hand(Hand(StopReplicaRequest(9, 1, broker_epoch, [state]))))

    async def update(self, *, broker_epoch: int = MY_EPOCH, controller_epoch: int = 1, controller_id: int = 9) -> Any:
        brokers = [UpdateMetadataBroker(9, [UpdateMetadataEndpoint("PLAINTEXT", "broker", 9092)])]
        request = UpdateMetadataRequest(controller_id, controller_epoch, broker_epoch, [], brokers)
        return await self.control.update_metadata(in_hand(Hand(request)))


@pytest.fixture
async def broker(autojump_clock, nursery) -> AsyncIterator[Broker]:
    zookeeper = MemoryZooKeeper()
    await nursery.start(zookeeper.run)
    client = zookeeper.client()
    await client.start()
    yield Broker(client)


# --- orders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine", [MY_EPOCH, -1], ids=["registered", "between two sessions"])
async def test_orders_for_another_life_of_this_broker_are_refused(
    mine: int, broker: Broker, autojump_clock: MockClock
) -> None:
    await broker.update()
    broker.registration.broker_epoch = mine
    version = broker.site.metadata.version
    for epoch in (MY_EPOCH - 1, MY_EPOCH + 1, -1):
        for response in (await broker.lead(broker_epoch=epoch), await broker.update(broker_epoch=epoch)):
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert (await broker.stop(broker_epoch=epoch)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not broker.site.replicas.partitions
    assert broker.site.metadata.version == version


async def test_metadata_of_a_past_controller_is_refused(broker: Broker, autojump_clock: MockClock) -> None:
    assert (await broker.update(controller_epoch=5)).error_code == 0
    assert (await broker.update(controller_epoch=4)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_a_session_that_ended_while_topic_configurations_were_read_makes_the_order_stale(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def read_slowly(paths: list[str]) -> list[None]:
        broker.registration.broker_epoch = -1
        return [None for _ in paths]

    monkeypatch.setattr(broker.client, "get_many", read_slowly)
    assert (await broker.lead()).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not broker.site.replicas.partitions


async def test_a_replica_starts_with_the_configuration_that_zookeeper_has(
    broker: Broker, autojump_clock: MockClock
) -> None:
    config = ConfigZnode(config={"min.insync.replicas": "3"})
    await broker.client.create(ConfigZnode.path("t"), config.encode(), parents=True)
    await broker.lead()
    assert broker.site.partition().leadership.required_isr_size == 3


@pytest.mark.parametrize(
    ("data", "told", "minimum"),
    [
        (b"junk", "nothing of this topic is deleted or compacted until its configuration is mended", INT_MAX),
        (
            b'{"version":1,"config":{"min.insync.replicas":"many"}}',
            "nothing of this topic is deleted or compacted until its configuration is mended",
            INT_MAX,
        ),
        (b'{"version":1,"config":{"compression.zstd.level":"3"}}', "topic keys without effect", 1),
        (b'{"version":1,"config":{"message.downconversion.enable":"false"}}', "topic keys without effect", 1),
    ],
)
async def test_a_configuration_that_is_not_understood_is_told_and_read_as_the_one_that_loses_nothing(
    data: bytes, told: str, minimum: int, broker: Broker, autojump_clock: MockClock
) -> None:
    await broker.client.create(ConfigZnode.path("t"), data, parents=True)
    assert (await broker.lead()).partition_errors[0].error_code == 0
    assert told in broker.site.event_names()
    config = broker.site.partition().config
    assert config.min_insync_replicas == minimum
    assert (config.retention_ms == -1) == (minimum == INT_MAX)


async def test_no_replica_starts_while_its_configuration_cannot_be_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def lost(paths: list[str]) -> None:
        raise ConnectionLost("get_many")

    with monkeypatch.context() as patch:
        patch.setattr(broker.client, "get_many", lost)
        assert (await broker.lead()).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert not broker.site.replicas.partitions
    assert (await broker.lead()).partition_errors[0].error_code == 0, "the same order again is carried out"


async def test_a_topic_created_anew_has_its_own_configuration(broker: Broker, autojump_clock: MockClock) -> None:
    await broker.lead()
    await broker.stop()
    config = ConfigZnode(config={"min.insync.replicas": "3"})
    await broker.client.create(ConfigZnode.path("t"), config.encode(), parents=True)
    await broker.lead(topic_id=b"\x07" * 16)
    assert broker.site.partition().config.min_insync_replicas == 3


async def test_a_topic_keeps_its_configuration_here_until_its_last_replica_is_deleted(
    broker: Broker, autojump_clock: MockClock
) -> None:
    states = [broker.site.state(TopicPartition("t", number), is_new=True) for number in range(2)]
    topic = LeaderAndIsrTopicState("t", TOPIC_ID, states)
    await broker.control.leader_and_isr(in_hand(Hand(LeaderAndIsrRequest(9, 1, MY_EPOCH, [topic], []))))
    await broker.stop()
    assert list(broker.site.replicas.partitions) == [("t", 1)]
    await broker.client.create(ConfigZnode.path("t"), ConfigZnode({"retention.ms": "7"}).encode(), parents=True)
    await broker.topic_configs.read_again({"t"})
    known = broker.topic_configs.current("t", TOPIC_ID)
    assert known is not None and known.retention_ms == 7, "the other replica goes by it"
    await broker.stop(partition=1)
    assert broker.topic_configs.current("t", TOPIC_ID) is None


def largest_gap(seen: list[int]) -> int:
    ordered = sorted(set(seen))
    return max(after - before for before, after in pairwise(ordered))


async def test_orders_for_many_replicas_let_others_run_between_some_of_them(
    broker: Broker, autojump_clock: MockClock
) -> None:
    site, count = broker.site, 50
    seen: list[int] = []

    async def others() -> None:
        while True:
            seen.append(len(site.replicas.partitions))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await site.order(*(site.state(TopicPartition("t", number), is_new=True) for number in range(count)))
        # The order of two tasks within a turn is random: at most one step is missed.
        assert largest_gap([*seen, count]) <= 2 * LOGS_PER_STEP, "new logs are made a few at a time"
        seen.clear()
        states = [StopReplicaPartitionState("t", TOPIC_ID, number, 0, True) for number in range(count)]
        response: Any = await broker.control.stop_replica(in_hand(Hand(StopReplicaRequest(9, 1, MY_EPOCH, states))))
        assert largest_gap([0, *seen, count]) <= 2 * REMOVALS_PER_STEP
        nursery.cancel_scope.cancel()
    assert [error.error_code for error in response.partition_errors] == [0] * count
    assert not site.replicas.partitions


@pytest.mark.parametrize(("deleted_every", "at_most"), [(0, 20), (10, 120)], ids=["none deleted", "every tenth"])
async def test_stops_without_a_deletion_take_few_steps(
    deleted_every: int, at_most: int, broker: Broker, autojump_clock: MockClock
) -> None:
    """Under load each step waits for a whole turn of the loop."""
    count, turns = 10 * PARTITIONS_PER_STEP, 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    deleted = [deleted_every > 0 and number % deleted_every == 0 for number in range(count)]
    states = [StopReplicaPartitionState("t", TOPIC_ID, number, 0, gone) for number, gone in enumerate(deleted)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        response: Any = await broker.control.stop_replica(in_hand(Hand(StopReplicaRequest(9, 1, MY_EPOCH, states))))
        nursery.cancel_scope.cancel()
    assert [error.partition_index for error in response.partition_errors] == list(range(count))
    assert 3 <= turns <= at_most


async def test_a_session_that_ends_between_two_stops_makes_the_rest_stale(
    broker: Broker, autojump_clock: MockClock
) -> None:
    site, count = broker.site, 50
    await site.order(*(site.state(TopicPartition("t", number), is_new=True) for number in range(count)))

    async def new_session() -> None:
        broker.registration.broker_epoch = MY_EPOCH + 1

    states = [StopReplicaPartitionState("t", TOPIC_ID, number, 0, True) for number in range(count)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(new_session)
        response: Any = await broker.control.stop_replica(in_hand(Hand(StopReplicaRequest(9, 1, MY_EPOCH, states))))
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert 0 < len(site.replicas.partitions) < count


# --- asking the controller -------------------------------------------------------------------------------------


async def test_a_topic_is_created_automatically_once_however_often_it_is_asked_for(
    broker: Broker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker.plane.create_gate = trio.Event()
    nursery.start_soon(broker.control.creations.run)
    for _ in range(3):
        broker.control.creations.add("new", "client:1")
    await wait_all_tasks_blocked()
    broker.control.creations.add("new", "client:1")
    await wait_all_tasks_blocked()
    assert broker.plane.created() == [["new"]]
    broker.plane.create_gate.set()
    await wait_all_tasks_blocked()
    broker.control.creations.add("new", "client:1")
    await wait_all_tasks_blocked()
    assert broker.plane.created() == [["new"], ["new"]], "later it may be asked for again"
    assert not broker.site.submitted, "no handler task waits for the controller"


async def test_automatic_creations_at_a_time_are_bounded_and_a_slow_one_does_not_keep_the_others(
    broker: Broker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker.plane.create_gate = slow = trio.Event()
    nursery.start_soon(broker.control.creations.run)
    broker.control.creations.add("slow", "client:1")
    await wait_all_tasks_blocked()
    broker.plane.create_gate = trio.Event()
    for number in range(1000):
        broker.control.creations.add(f"new-{number}", "client:1")
    assert broker.site.event_names().count("creating topic automatically") == MAX_CREATIONS
    await wait_all_tasks_blocked()
    assert len(broker.plane.created()) == REQUESTS_AT_A_TIME
    broker.plane.create_gate.set()
    await wait_all_tasks_blocked()
    created = broker.plane.created()
    assert max(map(len, created)) <= NAMES_PER_REQUEST
    assert list(chain.from_iterable(created)) == ["slow", *(f"new-{number}" for number in range(MAX_CREATIONS - 1))]
    broker.control.creations.add("new-999", "client:1")
    await wait_all_tasks_blocked()
    assert broker.plane.created()[-1] == ["new-999"]
    slow.set()


@pytest.mark.parametrize(
    "bug",
    [None, ValueError("a bug"), BrokerError(ErrorCode.NOT_CONTROLLER)],
    ids=["unreachable", "a bug", "not controller any more"],
)
async def test_an_automatic_creation_that_fails_may_be_tried_again(
    bug: Exception | None, broker: Broker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker.plane.is_active, broker.plane.bug = bug is not None, bug
    nursery.start_soon(broker.control.creations.run)
    for attempt in (1, 2):
        broker.control.creations.add("new", "client:1")
        await wait_all_tasks_blocked()
        assert broker.site.event_names().count("automatic creation failed") == attempt


async def test_the_controller_is_asked_where_the_metadata_says_it_is(broker: Broker, autojump_clock: MockClock) -> None:
    broker.plane.is_active = False
    elsewhere = Plane()

    def api_versions(request: RequestInHand) -> None:
        request.respond(ApiVersionsResponse(0, [ApiVersion(key, *api.native) for key, api in APIS.items()]))

    async def shutdown(request: RequestInHand) -> ControlledShutdownResponse:
        return cast(ControlledShutdownResponse, await elsewhere.ask(request.message))

    handlers = {ApiKey.API_VERSIONS: api_versions, ApiKey.CONTROLLED_SHUTDOWN: shutdown}
    async with open_pipeline(handlers, network=broker.site.network):
        with pytest.raises(CannotReachBroker):
            await broker.control.ask_controller(ControlledShutdownRequest(1, MY_EPOCH))
        await broker.update()
        await broker.control.leave_cluster()
    assert elsewhere.asked == [ControlledShutdownRequest(1, MY_EPOCH)]
    assert broker.plane.asked == []


# --- leaving ---------------------------------------------------------------------------------------------------


async def test_leaving_is_asked_for_until_nothing_is_led_any_more(broker: Broker, autojump_clock: MockClock) -> None:
    broker.plane.shutdown_answers = [
        BrokerError(ErrorCode.NOT_CONTROLLER),
        ControlledShutdownResponse(0, [(T0.topic, T0.partition)]),
        ControlledShutdownResponse(0, []),
    ]
    before = trio.current_time()
    await broker.control.leave_cluster()
    assert len(broker.plane.asked) == 3
    assert 0.99 < trio.current_time() - before < 1.1, "two pauses of controlled.shutdown.retry.backoff.ms"
    assert broker.site.event_names().count("controlled shutdown incomplete") == 2


async def test_leaving_gives_up_after_its_retries(broker: Broker, autojump_clock: MockClock) -> None:
    broker.plane.shutdown_answers = [ControlledShutdownResponse(0, [(T0.topic, T0.partition)])] * 9
    await broker.control.leave_cluster()
    assert len(broker.plane.asked) == 1 + broker.site.config.controlled_shutdown_max_retries
    assert "controlled shutdown done" not in broker.site.event_names()
    assert broker.site.event_names()[-1] == "stops without handing everything over"


async def test_leaving_gives_up_when_no_controller_can_be_reached(broker: Broker, autojump_clock: MockClock) -> None:
    broker.plane.is_active = False
    await broker.control.leave_cluster()
    assert broker.site.event_names().count("controlled shutdown incomplete") == 4


async def test_leaving_goes_by_the_registration_of_the_moment(broker: Broker, autojump_clock: MockClock) -> None:
    broker.plane.shutdown_answers = [ControlledShutdownResponse(ErrorCode.STALE_BROKER_EPOCH, [])]

    async def new_session() -> None:
        broker.registration.broker_epoch = MY_EPOCH + 5

    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.control.leave_cluster)
        await trio.sleep(0.1)
        nursery.start_soon(new_session)
    assert [request.broker_epoch for request in broker.plane.asked] == [MY_EPOCH, MY_EPOCH + 5]
