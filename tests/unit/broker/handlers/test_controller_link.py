"""What the controller is asked: by way of the metadata, for topics that somebody named, for an orderly leave."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.broker.handlers.controller_link import ControllerLink
from strandline.broker.handlers.creations import (
    MAX_CREATIONS,
    NAMES_PER_REQUEST,
    REQUESTS_AT_A_TIME,
    AutomaticCreations,
)
from strandline.broker.membership.leaving import leave_cluster
from strandline.broker.membership.registration import Registration
from strandline.broker.network.request import RequestInHand
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
    Message,
    Request,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from support.pipeline import open_pipeline
from support.replica_site import T0, ReplicaSite

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
        self.late_code = ErrorCode.NONE
        """Of what it creates, though it found nothing wrong with it."""
        self.also_refused: list[str] = []
        """Named in the answers to CreateTopics, though nobody asked for them."""

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
        refused = [CreatableTopicResult(name, ErrorCode.INVALID_TOPIC_EXCEPTION) for name in self.also_refused]
        code = ErrorCode.NONE if request.validate_only else self.late_code
        return CreateTopicsResponse([*refused, *(CreatableTopicResult(topic.name, code) for topic in request.topics)])


class Broker:
    def __init__(self) -> None:
        self.site = ReplicaSite(config={"controlled.shutdown.retry.backoff.ms": "500"})
        self.plane = Plane()
        self.registration = SimpleNamespace(broker_id=1, broker_epoch=MY_EPOCH)
        self.link = ControllerLink(self.site.replicas, self.site.environment.network, self.plane)
        self.creations = AutomaticCreations(self.link.ask, self.site.log)
        registration = cast(Registration, self.registration)
        self.leave = partial(leave_cluster, self.site.config, registration, self.link.ask, self.site.log)


@pytest.fixture
async def broker(autojump_clock: MockClock) -> Broker:
    return Broker()


# --- asking the controller -------------------------------------------------------------------------------------


async def test_a_topic_is_created_automatically_once_however_often_it_is_asked_for(
    broker: Broker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker.plane.create_gate = trio.Event()
    nursery.start_soon(broker.creations.run)
    for _ in range(3):
        broker.creations.add("new", "client:1")
    await wait_all_tasks_blocked()
    broker.creations.add("new", "client:1")
    await wait_all_tasks_blocked()
    assert broker.plane.created() == [["new"]]
    broker.plane.create_gate.set()
    await wait_all_tasks_blocked()
    broker.creations.add("new", "client:1")
    await wait_all_tasks_blocked()
    assert broker.plane.created() == [["new"], ["new"]], "later it may be asked for again"
    assert not broker.site.submitted, "no handler task waits for the controller"


async def test_automatic_creations_at_a_time_are_bounded_and_a_slow_one_does_not_keep_the_others(
    broker: Broker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker.plane.create_gate = slow = trio.Event()
    nursery.start_soon(broker.creations.run)
    broker.creations.add("slow", "client:1")
    await wait_all_tasks_blocked()
    broker.plane.create_gate = trio.Event()
    for number in range(1000):
        broker.creations.add(f"new-{number}", "client:1")
    assert broker.site.event_names().count("creating topic automatically") == MAX_CREATIONS
    await wait_all_tasks_blocked()
    assert len(broker.plane.created()) == REQUESTS_AT_A_TIME
    broker.plane.create_gate.set()
    await wait_all_tasks_blocked()
    created = broker.plane.created()
    assert max(map(len, created)) <= NAMES_PER_REQUEST
    assert list(chain.from_iterable(created)) == ["slow", *(f"new-{number}" for number in range(MAX_CREATIONS - 1))]
    broker.creations.add("new-999", "client:1")
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
    nursery.start_soon(broker.creations.run)
    for attempt in (1, 2):
        broker.creations.add("new", "client:1")
        await wait_all_tasks_blocked()
        assert broker.site.event_names().count("automatic creation failed") == attempt


@pytest.mark.parametrize(
    ("late_code", "refunds"),
    [(ErrorCode.NONE, 0), (ErrorCode.REQUEST_TIMED_OUT, 0), (ErrorCode.TOPIC_ALREADY_EXISTS, 1)],
)
async def test_an_automatic_creation_is_charged_when_it_was_checked_and_given_back_where_nothing_comes_of_it(
    late_code: ErrorCode, refunds: int, broker: Broker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker.plane.late_code = late_code
    happened: list[object] = []

    def charge() -> Callable[[], None]:
        happened.extend(broker.plane.asked)
        return lambda: happened.append("refund")

    nursery.start_soon(broker.creations.run)
    broker.creations.add("new", "client:1", charge)
    await wait_all_tasks_blocked()
    checked, _ = broker.plane.asked
    assert isinstance(checked, CreateTopicsRequest) and checked.validate_only
    assert happened == [checked, *["refund"] * refunds]


async def test_what_somebody_owes_for_is_not_created_automatically_and_the_brokers_own_are(
    broker: Broker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker.creations.add("owed", "client:1", lambda: None)
    broker.creations.add("own", "group coordinator")
    nursery.start_soon(broker.creations.run)
    await wait_all_tasks_blocked()
    assert broker.plane.created() == [["owed"], ["own"]], "the first one is only checked"


async def test_an_answer_about_a_topic_that_was_not_asked_for_does_not_end_creations(
    broker: Broker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    broker.plane.also_refused = ["nobody's"]
    nursery.start_soon(broker.creations.run)
    for name in ("one", "another"):
        broker.creations.add(name, "client:1")
        await wait_all_tasks_blocked()
    assert broker.plane.created() == [["one"], ["another"]]


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
            await broker.link.ask(ControlledShutdownRequest(1, MY_EPOCH))
        here = [UpdateMetadataBroker(9, [UpdateMetadataEndpoint("PLAINTEXT", "broker", 9092)])]
        broker.site.replicas.update_metadata(UpdateMetadataRequest(9, 1, MY_EPOCH, [], here))
        await broker.leave()
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
    await broker.leave()
    assert len(broker.plane.asked) == 3
    assert 0.99 < trio.current_time() - before < 1.1, "two pauses of controlled.shutdown.retry.backoff.ms"
    assert broker.site.event_names().count("controlled shutdown incomplete") == 2


async def test_leaving_gives_up_after_its_retries(broker: Broker, autojump_clock: MockClock) -> None:
    broker.plane.shutdown_answers = [ControlledShutdownResponse(0, [(T0.topic, T0.partition)])] * 9
    await broker.leave()
    assert len(broker.plane.asked) == 1 + broker.site.config.controlled_shutdown_max_retries
    assert "controlled shutdown done" not in broker.site.event_names()
    assert broker.site.event_names()[-1] == "stops without handing everything over"


async def test_leaving_gives_up_when_no_controller_can_be_reached(broker: Broker, autojump_clock: MockClock) -> None:
    broker.plane.is_active = False
    await broker.leave()
    assert broker.site.event_names().count("controlled shutdown incomplete") == 4


async def test_leaving_goes_by_the_registration_of_the_moment(broker: Broker, autojump_clock: MockClock) -> None:
    broker.plane.shutdown_answers = [ControlledShutdownResponse(ErrorCode.STALE_BROKER_EPOCH, [])]

    async def new_session() -> None:
        broker.registration.broker_epoch = MY_EPOCH + 5

    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.leave)
        await trio.sleep(0.1)
        nursery.start_soon(new_session)
    assert [request.broker_epoch for request in broker.plane.asked] == [MY_EPOCH, MY_EPOCH + 5]
