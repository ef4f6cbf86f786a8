"""Requests that name many partitions: what is let in, what others get of the loop meanwhile, what stands twice."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import trio
from trio.testing import MockClock

from strandline.broker.handlers.queries import QueryHandler
from strandline.broker.network.dialects import native
from strandline.broker.network.dialects.native import decode_broad
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.steps import PARTITIONS_PER_STEP, InSteps
from strandline.protocol import messages as m
from strandline.protocol.api import API_OF, ApiKey
from strandline.protocol.errors import BrokerError, ErrorCode, RemoteProtocolError
from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.topic_name import INTERNAL_TOPICS
from strandline.protocol.types import TopicPartition
from support.pipeline import open_pipeline
from support.raw_client import request_frame
from support.replica_site import T0, T1, Hand, ReplicaSite, batch, in_hand, turns_of_others

MANY = 5 * PARTITIONS_PER_STEP
NUMBERS = range(MANY)


# --- at the door -------------------------------------------------------------------------------------------------


def fetch_of(count: int) -> m.FetchRequest:
    return m.FetchRequest(0, 0, 1000, [m.FetchTopic("t", [m.FetchPartition(n, 0, 1000) for n in range(count)])])


def decoded(name: str, body: bytes) -> Any:
    return decode_broad(API_OF[getattr(m, f"{name}Request")], memoryview(body))


def body_of(request: m.Request) -> bytes:
    return request_frame(request)[21:]


def test_as_many_partitions_as_one_request_may_name_are_read() -> None:
    assert len(decoded("Fetch", body_of(fetch_of(MAX_NAMED))).topics[0].partitions) == 10_000
    with pytest.raises(RemoteProtocolError, match="2097152 bytes that name 10000 topics or partitions: send several"):
        decoded("Fetch", body_of(fetch_of(MAX_NAMED + 1)))


def test_a_request_may_assign_all_its_partitions_by_hand_and_bring_settings() -> None:
    by_hand = m.CreatableTopic("t", -1, -1, {number: [1, 2, 3] for number in range(MAX_NAMED)}, {"retention.ms": "1"})
    request = decoded("CreateTopics", body_of(m.CreateTopicsRequest([by_hand])))
    assert (len(request.topics[0].assignments), request.topics[0].configs) == (MAX_NAMED, {"retention.ms": "1"})
    with pytest.raises(RemoteProtocolError, match="names 10001"):
        two = m.CreateTopicsRequest([by_hand, m.CreatableTopic("u")])
        decoded("CreateTopics", body_of(two))


@pytest.mark.parametrize("item", [[], {}, [1], {1: 1}, msgpack.ExtType(5, b"")], ids=repr)
def test_a_body_of_tiny_lists_is_refused_before_they_are_made(item: object, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(native, "decode_body", lambda *given: made.append(given))
    body = msgpack.packb([0, 0, 1000, [[item] * 100] * 5000])
    with pytest.raises(RemoteProtocolError, match="FetchRequest of more lists than its topics and partitions need"):
        decoded("Fetch", body)
    assert not made


@pytest.mark.parametrize("name", ["", "t"])
@pytest.mark.parametrize("request_name", ["Metadata", "DeleteTopics"])
def test_a_list_that_is_too_long_is_refused_before_its_elements_are_made(
    request_name: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "check_named", lambda message: pytest.fail("it was made"))
    body = msgpack.packb([[name] * 1_000_000])
    with pytest.raises(RemoteProtocolError, match=r"length <= 10000.*send several"):
        decoded(request_name, body)


def test_so_is_a_partition_of_too_many_replicas() -> None:
    topic = ["t", -1, -1, {0: [1] * (MAX_NAMED + 1)}, {}]
    with pytest.raises(RemoteProtocolError, match=r"length <= 10000.*send several"):
        decoded("CreateTopics", msgpack.packb([[topic]]))


@pytest.mark.parametrize("byte", [0x80, 0x90, 0xDC])
def test_numbers_whose_bytes_look_like_lists_are_read(byte: int) -> None:
    """Of all partitions, in all their bytes: no broker's offsets do that, and it still is a request."""
    int32, int64 = int.from_bytes(bytes([0x7F]) + bytes([byte] * 3)), int.from_bytes(bytes([0x7F]) + bytes([byte] * 7))
    partition = m.FetchPartition(int32, int64, int32, int32, int32, int64)
    request = m.FetchRequest(0, 0, 1000, [m.FetchTopic("t", [partition]) for _ in range(MAX_NAMED)])
    assert decoded("Fetch", body_of(request)) == request


def test_what_controllers_send_has_no_such_bound() -> None:
    states = [m.UpdateMetadataPartitionState(number, 1, 1, 0, [1], 0, [1]) for number in range(MAX_NAMED + 1)]
    request = m.UpdateMetadataRequest(9, 1, 1, [m.UpdateMetadataTopicState("t", bytes(16), states)], [])
    request = decoded("UpdateMetadata", body_of(request))
    assert len(request.topic_states[0].partition_states) == MAX_NAMED + 1


def test_the_collector_waits_while_a_large_body_is_read_and_goes_on_after_a_bad_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[bool] = []
    monkeypatch.setattr(native, "decode_body", lambda *_: paused.append(not gc.isenabled()) or fetch_of(1))
    decoded("Fetch", b"")
    assert (paused, gc.isenabled()) == ([True], True)
    monkeypatch.undo()
    with pytest.raises(RemoteProtocolError):
        decoded("Fetch", msgpack.packb(["nonsense"]))
    assert gc.isenabled()


async def test_others_are_served_between_the_large_requests_of_one_connection() -> None:
    """The pipelined requests of one client arrive in one read; the other's only one comes behind the first."""
    order: list[str] = []

    def fetch(request: RequestInHand) -> None:
        order.append("wide" if request.message.topics else "small")
        request.respond(m.FetchResponse([]))

    async with open_pipeline({ApiKey.FETCH: fetch}) as pipeline:
        wide, other = await pipeline.connect("a"), await pipeline.connect("b")
        wide_frame = request_frame(fetch_of(4000))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wide.send, wide_frame * 8)
            nursery.start_soon(other.send, request_frame(m.FetchRequest(0, 0, 0, [])))
            for _ in range(8):
                assert await wide.response() is not None
            assert await other.response() is not None
    assert order.index("small") < 4, order


# --- in the handlers ---------------------------------------------------------------------------------------------


@pytest.fixture
async def queries(site: ReplicaSite) -> QueryHandler:
    return site.queries()


async def turns_before_answer(handle: Callable[[RequestInHand], Remainder | None], hand: Hand) -> int:
    remainder = handle(in_hand(hand))
    assert isinstance(remainder, InSteps), "answered inline, or by a handler task that may be long in coming"
    assert not hand.is_answered
    return await turns_of_others(hand, remainder)


async def test_questions_about_many_partitions_let_others_run_and_those_about_few_are_answered_at_once(
    site: ReplicaSite, queries: QueryHandler, autojump_clock: MockClock
) -> None:
    await site.lead(replicas=(1,), isr=(1,))

    def ask(count: int) -> list[tuple[Callable[[RequestInHand], Remainder | None], Hand]]:
        offsets = [m.ListOffsetsPartition(number, -1) for number in range(count)]
        ends = [m.OffsetForLeaderPartition(number, 0) for number in range(count)]
        return [
            (queries.list_offsets, Hand(m.ListOffsetsRequest([m.ListOffsetsTopic("t", offsets)]))),
            (
                queries.offset_for_leader_epoch,
                Hand(m.OffsetForLeaderEpochRequest([m.OffsetForLeaderTopic("t", ends)])),
            ),
        ]

    for handle, hand in ask(PARTITIONS_PER_STEP):
        assert handle(in_hand(hand)) is None
        assert hand.is_answered
    for handle, hand in ask(MANY):
        assert await turns_before_answer(handle, hand) >= 4
        answered = hand.answer.topics[0].partitions
        assert len(answered) == MANY
        assert [part.error_code for part in answered[:2]] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_search_by_time_waits_for_workers_in_a_handler_task_however_many_offsets_are_asked_for(
    queries: QueryHandler,
    autojump_clock: MockClock,
) -> None:
    offsets = [m.ListOffsetsPartition(number, -1) for number in NUMBERS] + [m.ListOffsetsPartition(MANY, 5)]
    remainder = queries.list_offsets(in_hand(Hand(m.ListOffsetsRequest([m.ListOffsetsTopic("t", offsets)]))))
    assert remainder is not None and not isinstance(remainder, InSteps)


async def test_metadata_of_many_topics_lets_others_run(
    site: ReplicaSite, queries: QueryHandler, autojump_clock: MockClock
) -> None:
    for number in range(MANY):
        site.update_metadata(m.UpdateMetadataPartitionState(0, 1, 1, 0, [1], 0, [1]), topic=f"n{number:05}")
    for asked in (None, [f"n{number:05}" for number in NUMBERS]):
        hand = Hand(m.MetadataRequest(asked))
        assert await turns_before_answer(queries.metadata, hand) >= 4
        assert [topic.name for topic in hand.answer.topics] == [f"n{number:05}" for number in NUMBERS]


async def test_leaders_are_among_the_brokers_of_the_answer_though_brokers_come_and_go_while_it_is_made(
    site: ReplicaSite, queries: QueryHandler, autojump_clock: MockClock
) -> None:
    for number in range(MANY):
        state = m.UpdateMetadataPartitionState(0, 1, 2 + number % 2, 0, [2, 3], 0, [2, 3])
        site.update_metadata(state, topic=f"n{number:05}")
    all_brokers = site.metadata.brokers
    site.metadata.brokers = {number: broker for number, broker in all_brokers.items() if number != 3}
    hand = Hand(m.MetadataRequest(None))
    remainder = queries.metadata(in_hand(hand))
    assert remainder is not None

    async def brokers_change() -> None:
        for _ in range(3):  # by then some topics are done, and not all of them
            await trio.lowlevel.checkpoint()
        site.metadata.brokers = {number: broker for number, broker in all_brokers.items() if number != 2}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(remainder)
        nursery.start_soon(brokers_change)
    named = {broker.node_id for broker in hand.answer.brokers}
    leaders = {part.leader_id for topic in hand.answer.topics for part in topic.partitions}
    assert (named, leaders) == ({1, 2}, {-1, 2})


async def test_a_topic_that_goes_while_all_are_listed_is_left_out_and_not_made_anew(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    created: list[str] = []
    queries = QueryHandler(
        site.logs,
        site.replicas,
        site.data.burst,
        site.environment.computing,
        cluster_id="c",
        software_version="1",
        broker_key="",
        create_topics=lambda names, _: created.extend(names),
    )
    for number in range(MANY):
        site.update_metadata(m.UpdateMetadataPartitionState(0, 1, 1, 0, [1], 0, [1]), topic=f"n{number:05}")
    hand = Hand(m.MetadataRequest(None, True))
    remainder = queries.metadata(in_hand(hand))
    assert remainder is not None
    del site.metadata.topics["n00999"]
    await remainder()
    assert len(hand.answer.topics) == MANY - 1
    assert created == []


async def test_deletions_of_records_in_many_partitions_let_others_run(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch(5)))
    parts = [m.DeleteRecordsPartition(number, 3) for number in NUMBERS]
    hand = Hand(m.DeleteRecordsRequest([m.DeleteRecordsTopic("t", parts)], 1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.log_starts.run)
        assert await turns_before_answer(site.data.delete_records.handle, hand) >= 4
        nursery.cancel_scope.cancel()
    assert hand.deleted[:2] == [(0, 3), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert len(hand.deleted) == MANY


# --- what stands twice -------------------------------------------------------------------------------------------


async def test_a_produce_that_names_a_partition_twice_appends_both_in_order(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    hand = site.produce((T0, batch(2)), (T0, batch(3)), (T0, b""))
    assert [(part.error_code, part.base_offset) for part in hand.outcomes[:2]] == [(0, 0), (0, 2)]
    assert site.partition().log.log_end_offset == 5


async def test_a_fetch_or_deletion_that_names_a_partition_twice_is_refused_and_waits_for_nothing(
    site: ReplicaSite,
    autojump_clock: MockClock,
) -> None:
    for tp in (T0, T1):
        await site.lead(tp, replicas=(1,), isr=(1,))
    for names in ((T0, T0), (T0, T1, T0)):
        with pytest.raises(BrokerError, match="twice") as refusal:
            site.fetch(*((tp, 0) for tp in names), wait_ms=1000)
        assert refusal.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(BrokerError, match="twice"):
            site.delete_records(*((tp, 0) for tp in names))
    assert not site.partition().parked_fetches and not site.partition().deletions.waiting
    assert not site.fetch((T0, 0), (T1, 0), (TopicPartition("t", 2), 0), wait_ms=0).answer.error_code


# --- the brokers' own topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
async def test_clients_read_the_brokers_own_topics_and_neither_write_nor_create_them(
    site: ReplicaSite, queries: QueryHandler, name: str, autojump_clock: MockClock
) -> None:
    created: list[Any] = []
    queries._create_topics = lambda *asked: created.append(asked)

    def metadata(*, create: bool) -> m.MetadataTopic:
        hand = Hand(m.MetadataRequest([name], create))
        assert queries.metadata(in_hand(hand)) is None
        topic: m.MetadataTopic = hand.answer.topics[0]
        return topic

    site.update_metadata()
    assert metadata(create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert created == []
    tp = TopicPartition(name, 0)
    await site.order(site.state(tp, replicas=(1,), isr=(1,)), topic=name)
    site.update_metadata(m.UpdateMetadataPartitionState(0, 1, 1, 0, [1], 0, [1]), topic=name)
    (outcome,) = site.produce((tp, batch())).outcomes
    assert outcome.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (
        outcome.error_message
        == f"topic {name} is the brokers' own: clients may read it, and not create, delete or write to it"
    )
    assert site.partition(tp).log.log_end_offset == 0
    assert site.fetch((tp, 0)).fetched[0].error_code == 0
    told = metadata(create=True)
    assert (told.error_code, told.is_internal, len(told.partitions)) == (0, True, 1)
