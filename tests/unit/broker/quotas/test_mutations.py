"""What counts under the quota of mutations, and when: before a controller of the test's, which takes a while."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from strandline.broker.handlers.creations import AutomaticCreations
from strandline.broker.metadata_cache import MetadataCache, TopicMetadata
from strandline.broker.network.request import RequestInHand
from strandline.broker.quotas.entities import DEFAULT, QuotaEntity
from strandline.broker.quotas.holding import let_go
from strandline.broker.quotas.mutations import MutationGate
from strandline.broker.quotas.sensors import Sensor, Sensors, Windows
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    MetadataRequest,
    MetadataResponse,
    Request,
)
from strandline.protocol.types import TopicId
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.reading import load_broker_config
from support.pipeline import Pipeline, open_pipeline

PER_S = 5
SAVED_UP = 11 * PER_S
TURN_S = 0.1
EVERYBODY, OWN = QuotaEntity(DEFAULT), QuotaEntity("ANONYMOUS", "app")
INTERNAL_ID, KNOWN_ID = TopicId(b"internal".ljust(16)), TopicId(b"known".ljust(16))
REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Controller:
    """Each request takes it TURN_S, and what is made as long again. `made`: topics that exist → partitions."""

    def __init__(self) -> None:
        self.made = {"known": 10_000, "__consumer_offsets": 50}
        self.metadata = MetadataCache()
        for name, topic_id in (("known", KNOWN_ID), ("__consumer_offsets", INTERNAL_ID)):
            self.metadata.topics[name] = TopicMetadata(topic_id, dict.fromkeys(range(self.made[name])))
            self.metadata.name_of[topic_id] = name
        self.asked: list[Request] = []
        self.is_elected = True

    async def create(self, request: RequestInHand[CreateTopicsRequest]) -> CreateTopicsResponse:
        return await self.create_topics(request.message)

    async def create_topics(self, message: CreateTopicsRequest) -> CreateTopicsResponse:
        await self._take_turn(message)
        results = [CreatableTopicResult(each.name, self._creation_fails(each)) for each in message.topics]
        if not message.validate_only:
            self.made |= {
                each.name: each.num_partitions
                for each, result in zip(message.topics, results, strict=True)
                if not result.error_code
            }
            await trio.sleep(TURN_S)
        return CreateTopicsResponse(results)

    async def grow(self, request: RequestInHand[CreatePartitionsRequest]) -> CreatePartitionsResponse:
        await self._take_turn(request.message)
        code = ErrorCode.INVALID_PARTITIONS
        return CreatePartitionsResponse(
            [CreatePartitionsTopicResult(each.name, code) for each in request.message.topics]
        )

    async def delete(self, request: RequestInHand[DeleteTopicsRequest]) -> DeleteTopicsResponse:
        await self._take_turn(request.message)
        code = ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse([DeletableTopicResult(each.name, code) for each in request.message.asked()])

    async def _take_turn(self, message: Request) -> None:
        self.asked.append(message)
        await trio.sleep(TURN_S)
        if not self.is_elected:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)

    def _creation_fails(self, topic: CreatableTopic) -> int:
        if topic.name.startswith("twin"):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if topic.num_partitions != -1 and not 1 <= topic.num_partitions <= 10_000:
            return ErrorCode.INVALID_PARTITIONS
        return ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.made else ErrorCode.NONE


@asynccontextmanager
async def limited(**options: str) -> AsyncIterator[tuple[Pipeline, Controller, Sensors]]:
    controller = Controller()
    sensors = Sensors("ControllerMutation", Windows(1, 11, 11, is_debt_bounded=True))
    sensors.set_bounds({EVERYBODY: PER_S}, trio.current_time())
    config = load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:0", **options})
    gate = MutationGate(sensors, controller.metadata, CurrentConfig(config))
    handlers: dict[ApiKey, Callable[..., Any]] = {
        ApiKey.CREATE_TOPICS: controller.create,
        ApiKey.CREATE_PARTITIONS: controller.grow,
        ApiKey.DELETE_TOPICS: controller.delete,
    }
    creations = AutomaticCreations(controller.create_topics, structlog.get_logger())

    def metadata(request: RequestInHand[MetadataRequest]) -> None:
        gate.create_automatically(creations.add, request.message.topics or [], request)
        request.respond(MetadataResponse([], []))

    handlers[ApiKey.METADATA] = metadata
    handlers[ApiKey.API_VERSIONS] = lambda request: request.respond(ApiVersionsResponse(0, []))
    async with open_pipeline(handlers, is_inter_broker=False, num_handlers=16) as pipeline:
        pipeline.channel.switch_gate(gate)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(creations.run)
            yield pipeline, controller, sensors
            nursery.cancel_scope.cancel()


async def ask(pipeline: Pipeline, request: Request) -> Any:
    """The answer, by a connection of its own."""
    client = await pipeline.connect()
    answer = await client.request(request)
    assert answer is not None
    return answer.message


def creation(*topics: tuple[str, int]) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1) for name, partitions in topics])


async def create(pipeline: Pipeline, *topics: tuple[str, int]) -> list[int]:
    return [each.error_code for each in (await ask(pipeline, creation(*topics))).topics]


def the_one(sensors: Sensors) -> Sensor:
    [sensor] = sensors
    return sensor


FAILING = {
    "more partitions than a topic may have": creation(("big", 2**31 - 1)),
    "a topic that exists": creation(("known", 10_000)),
    "more partitions of a topic, which are refused": CreatePartitionsRequest([CreatePartitionsTopic("known", 20_000)]),
    "more partitions of a topic that is not there": CreatePartitionsRequest([CreatePartitionsTopic("nosuch", 3)]),
    "a topic that is not there": DeleteTopicsRequest(["nosuch"]),
    "what would go": DeleteTopicsRequest(["known"], validate_only=True),
    "a topic that is named twice over": DeleteTopicsRequest(topics=[DeleteTopicState("known", KNOWN_ID)]),
    "one of the brokers' own": DeleteTopicsRequest(["__consumer_offsets"]),
    "one of the brokers' own, by its id": DeleteTopicsRequest(topics=[DeleteTopicState(None, INTERNAL_ID)]),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING.keys())
async def test_nobody_is_refused_for_what_others_ask_for_and_do_not_get(
    failing: Request, autojump_clock: MockClock
) -> None:
    async with limited() as (pipeline, _, _), trio.open_nursery() as nursery:

        async def ask_again_and_again() -> None:
            while True:
                assert not (await ask(pipeline, failing)).throttle_time_ms

        for _ in range(4):
            nursery.start_soon(ask_again_and_again)
        await trio.sleep(1.05)
        codes = []
        for number in range(15):
            codes += await create(pipeline, (f"honest-{number}", 1))
            await trio.sleep(1.03)
        assert codes == [ErrorCode.NONE] * 15
        nursery.cancel_scope.cancel()


async def test_named_topics_that_cannot_be_created_keep_nobodys_from_it(autojump_clock: MockClock) -> None:
    async with limited(**{"num.partitions": "5"}) as (pipeline, controller, _), trio.open_nursery() as nursery:

        async def name_again_and_again() -> None:
            while True:
                await ask(pipeline, MetadataRequest([f"twin-{number}" for number in range(30)], True))
                await trio.sleep(TURN_S / 3)

        nursery.start_soon(name_again_and_again)
        await trio.sleep(1)
        names = [f"honest-{number}" for number in range(10)]
        for name in names:
            answer = await ask(pipeline, MetadataRequest([name], True))
            assert answer.throttle_time_ms == 0
            await trio.sleep(1.03)
        assert controller.made.keys() >= set(names)
        nursery.cancel_scope.cancel()


async def test_named_topics_pass_for_as_long_as_nothing_is_owed(autojump_clock: MockClock) -> None:
    async with limited(**{"num.partitions": "50"}) as (pipeline, controller, sensors):
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(ask, pipeline, MetadataRequest([f"named-{number}"], True))
        await trio.sleep(1)
        assert sum(name.startswith("named") for name in controller.made) == 2, "the second of them exceeds it"
        assert the_one(sensors).meter.owed_s(trio.current_time()) == pytest.approx(45 / PER_S - 1, abs=0.5)


async def test_what_must_not_be_deleted_counts_for_nothing(autojump_clock: MockClock) -> None:
    async with limited(**{"delete.topic.enable": "false"}) as (pipeline, _, sensors), trio.open_nursery() as nursery:
        nursery.start_soon(ask, pipeline, DeleteTopicsRequest(["known"]))
        await trio.sleep(TURN_S / 2)
        assert the_one(sensors).meter.left(trio.current_time()) == SAVED_UP


async def test_what_fails_takes_nothing_from_other_topics_of_its_request(autojump_clock: MockClock) -> None:
    """Results stand in the order of what was asked for."""
    async with limited() as (pipeline, controller, _):
        codes = await create(pipeline, ("big", 2**31 - 1), ("a", SAVED_UP), ("known", 9), ("b", 1), ("c", 1))
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        assert codes == [ErrorCode.INVALID_PARTITIONS, ErrorCode.NONE, exists, ErrorCode.NONE, REFUSED]
        _, done = controller.asked
        assert isinstance(done, CreateTopicsRequest) and [each.name for each in done.topics] == ["a", "b"]


async def test_where_all_topics_fail_the_controller_is_asked_once(autojump_clock: MockClock) -> None:
    async with limited() as (pipeline, controller, _):
        assert await create(pipeline, ("known", 1), ("big", 0)) == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_PARTITIONS,
        ]
        assert len(controller.asked) == 1


async def test_of_many_that_come_at_once_none_passes_uncounted(autojump_clock: MockClock) -> None:
    async with limited() as (pipeline, controller, sensors):
        codes: list[int] = []

        async def ask_once(number: int) -> None:
            codes.extend(await create(pipeline, (f"t-{number}", 40)))

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(ask_once, number)
        assert sorted(codes) == [ErrorCode.NONE] * 2 + [REFUSED] * 8, "the second of them exceeds it"
        assert sum(each.startswith("t-") for each in controller.made) == 2
        assert the_one(sensors).meter.owed_s(trio.current_time()) == pytest.approx(25 / PER_S, abs=3 * TURN_S)


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING.keys())
async def test_what_must_fail_is_answered_while_something_is_owed_as_if_nothing_were(
    failing: Request, autojump_clock: MockClock
) -> None:
    async with limited() as (pipeline, _, sensors):
        before = await ask(pipeline, failing)
        await create(pipeline, ("a", 2 * SAVED_UP))
        assert not the_one(sensors).meter.is_free(trio.current_time())
        assert await ask(pipeline, failing) == before and not before.throttle_time_ms


async def test_of_one_request_some_fail_and_others_are_refused(autojump_clock: MockClock) -> None:
    """Results stand in the order of what was asked for."""
    async with limited() as (pipeline, controller, _):
        await create(pipeline, ("a", 2 * SAVED_UP))
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        assert await create(pipeline, ("b", 1), ("known", 9), ("big", 0), ("c", 1)) == [
            *(REFUSED, exists, ErrorCode.INVALID_PARTITIONS, REFUSED)
        ]
        answer = await ask(pipeline, DeleteTopicsRequest(["known", "nosuch"]))
        assert [each.error_code for each in answer.responses] == [REFUSED, ErrorCode.INVALID_REQUEST]
        assert isinstance(done := controller.asked[-1], DeleteTopicsRequest)
        assert [each.name for each in done.asked()] == ["nosuch"] and answer.throttle_time_ms


async def test_who_asks_in_a_loop_and_is_refused_costs_one_check_each_time_and_is_held(
    autojump_clock: MockClock,
) -> None:
    async with limited() as (pipeline, controller, _):
        await create(pipeline, ("a", 2 * SAVED_UP))
        begun = len(controller.asked)
        for number in range(20):
            assert await create(pipeline, (f"b-{number}", 1)) == [REFUSED]
        checks = controller.asked[begun:]
        assert len(checks) == 20 and all(
            isinstance(each, CreateTopicsRequest) and each.validate_only for each in checks
        )
        client = await pipeline.connect()
        await client.request(creation(("c", 1)))
        answer = await client.request(creation(("c", 1)))
        assert answer is not None and isinstance(answer.message, CreateTopicsResponse)
        assert answer.message.topics[0].error_code == ErrorCode.NONE, "it was read when nothing was owed any more"


async def test_of_two_that_create_the_same_topic_the_slower_one_gets_its_partitions_back(
    autojump_clock: MockClock,
) -> None:
    async with limited() as (pipeline, _, sensors):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(create, pipeline, ("same", 20))
        left = the_one(sensors).meter.left(trio.current_time())
        assert left == pytest.approx(SAVED_UP - 20, abs=PER_S * 3 * TURN_S)


async def test_a_broker_that_is_no_controller_counts_nothing(autojump_clock: MockClock) -> None:
    async with limited() as (pipeline, controller, sensors):
        controller.is_elected = False
        for request in (creation(("a", 100)), DeleteTopicsRequest(["known"])):
            answer = await ask(pipeline, request)
            [result] = getattr(answer, "topics", None) or answer.responses
            assert (result.error_code, answer.throttle_time_ms) == (ErrorCode.NOT_CONTROLLER, 0)
        assert the_one(sensors).meter.is_free(trio.current_time())


@pytest.mark.parametrize("wait_s", [TURN_S / 2, 1.5 * TURN_S], ids=["while it is checked", "while it is done"])
@pytest.mark.parametrize("bounds", [{}, {EVERYBODY: PER_S, OWN: 10**6}], ids=["removed", "of its own"])
async def test_a_quota_that_counts_no_more_tells_and_holds_nothing(
    bounds: dict[QuotaEntity, float], wait_s: float, autojump_clock: MockClock
) -> None:
    async with limited() as (pipeline, _, sensors):
        client = await pipeline.connect()
        await client.request(ApiVersionsRequest(client_id="app"))
        told_ms = list[int]()

        async def ask_for_much() -> None:
            answer = await client.request(creation(("a", 2 * SAVED_UP)))
            assert answer is not None and isinstance(answer.message, CreateTopicsResponse)
            assert [each.error_code for each in answer.message.topics] == [ErrorCode.NONE]
            told_ms.append(answer.message.throttle_time_ms)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_for_much)
            await trio.sleep(wait_s)
            before = the_one(sensors)
            for sensor in sensors.set_bounds(bounds, trio.current_time()):
                let_go(sensor)
        began = trio.current_time()
        await client.request(creation(("b", 1)))
        assert told_ms == [0] and trio.current_time() - began < 1
        assert before.meter.is_free(trio.current_time()) == (not bounds or wait_s < TURN_S)


async def test_what_is_given_back_reaches_no_quota_that_counts_since_then(autojump_clock: MockClock) -> None:
    async with limited() as (pipeline, _, sensors):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(create, pipeline, ("same", 20))
            await trio.sleep(1.5 * TURN_S)
            for sensor in sensors.set_bounds({EVERYBODY: 1}, trio.current_time()):
                let_go(sensor)
            the_one(sensors).take(20, trio.current_time())
        assert the_one(sensors).meter.owed_s(trio.current_time()) == pytest.approx(20 - 11, abs=3 * TURN_S)
