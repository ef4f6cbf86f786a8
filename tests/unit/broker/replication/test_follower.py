"""Fetchers against a scripted leader: cut, append, discard, back off, start anew."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.follower import TURN_WAIT_MS
from strandline.broker.replication.partition import Partition
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ApiVersion,
    ApiVersionsResponse,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionData,
    FetchResponse,
    FetchTopicResponse,
    LiveLeader,
)
from strandline.protocol.records import assign_offset
from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import RECOVERY_POINTS, read_offsets
from support.pipeline import Pipeline, open_pipeline
from support.replica_site import ADDRESSES, T0, T1, ReplicaSite, batch

EPOCH = 3


def fetched(offset: int, *, epoch: int = EPOCH, count: int = 1) -> bytes:
    data = memoryview(bytearray(batch(count)))
    assign_offset(data, offset, epoch)
    return bytes(data)


class Leader:
    """Broker 2: every fetch waits for the test to answer it. `asked`: how many came."""

    def __init__(self) -> None:
        self.asked = 0
        self.pipeline: Pipeline | None = None
        self._came, self._fetches = trio.open_memory_channel[RequestInHand](1000)

    def api_versions(self, request: RequestInHand) -> None:
        request.respond(ApiVersionsResponse(0, [ApiVersion(key, *api.native) for key, api in APIS.items()]))

    def fetch(self, request: RequestInHand) -> None:
        self.asked += 1
        self._came.send_nowait(request)

    async def next(self) -> RequestInHand:
        with trio.fail_after(60):
            return await self._fetches.receive()

    def answer(self, request: RequestInHand, **parts: Any) -> None:
        """Of each partition asked for: `p0`, `p1` = dict of FetchPartitionData fields, `records` among them."""
        assert self.pipeline is not None
        regions: list[bytes | None] = []
        topics = []
        for topic in request.message.topics:
            data = []
            for asked in topic.partitions:
                fields = {"error_code": 0, "high_watermark": 0, **parts.get(f"p{asked.partition}", {})}
                regions.append(fields.pop("records", None))
                data.append(FetchPartitionData(asked.partition, **fields))
            topics.append(FetchTopicResponse(topic.topic, data))
        request.respond(FetchResponse(topics), regions)
        self.pipeline.channel.flush_responses()

    @staticmethod
    def reads(request: RequestInHand) -> dict[int, FetchPartition]:
        return {asked.partition: asked for topic in request.message.topics for asked in topic.partitions}


@pytest.fixture
async def leader(site: ReplicaSite) -> AsyncIterator[Leader]:
    async with leader_of(site) as one:
        yield one


@asynccontextmanager
async def leader_of(site: ReplicaSite) -> AsyncIterator[Leader]:
    """It listens where the site's fetchers look for broker 2; they run."""
    one = Leader()
    handlers = {ApiKey.API_VERSIONS: one.api_versions, ApiKey.FETCH: one.fetch}
    site.followers.incarnation = 8
    async with open_pipeline(handlers, network=site.network) as pipeline, trio.open_nursery() as nursery:
        one.pipeline = pipeline
        await nursery.start(site.followers.run)
        yield one
        nursery.cancel_scope.cancel()


async def following(site: ReplicaSite, epochs: tuple[int, ...] = ()) -> Partition:
    """A follower of broker 2 whose log has one record per entry, of that epoch."""
    await site.lead(epoch=0)
    for epoch in epochs:
        await site.lead(epoch=epoch)
        site.produce((T0, batch()), acks=1)
    return await site.follow_leader(epoch=EPOCH)


async def test_a_fetch_names_offset_epochs_topic_id_and_incarnation(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site, (1, 1, 2))
    request = await leader.next()
    asked = leader.reads(request)[0]
    assert (asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (3, EPOCH, 2)
    assert (request.message.replica_id, request.message.replica_epoch) == (1, 8)
    assert request.message.topics[0].topic_id == partition.topic_id


async def test_records_are_appended_then_the_high_watermark_moves_then_the_next_fetch_goes_out(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site)
    first = await leader.next()
    await trio.sleep(0.1)
    assert leader.asked == 1, "one fetch at a time: its offset is the acknowledgement"
    leader.answer(first, p0={"records": fetched(0, count=3), "high_watermark": 2})
    second = await leader.next()
    assert leader.reads(second)[0].fetch_offset == 3
    assert (partition.log.log_end_offset, partition.high_watermark) == (3, 2)


async def test_a_divergence_cuts_the_log_and_nothing_else_happens(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site, (1, 1, 2))
    first = await leader.next()
    diverging = {"diverging_epoch": EpochEndOffset(1, 2), "high_watermark": 3, "records": fetched(3)}
    leader.answer(first, p0=diverging)
    second = await leader.next()
    assert (leader.reads(second)[0].fetch_offset, leader.reads(second)[0].last_fetched_epoch) == (2, 1)
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0)


async def test_what_a_leaving_broker_was_fenced_from_it_asks_for_no_more(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    """It was handed over; before the order says so thousands may be refused again and again."""
    await site.follow_leader(T1, epoch=EPOCH)
    await following(site)
    while len(leader.reads(both := await leader.next())) < 2:
        pass
    site.replicas.is_leaving = True
    leader.answer(both, p0={"error_code": ErrorCode.FENCED_LEADER_EPOCH})
    for _ in range(5):
        request = await leader.next()
        assert list(leader.reads(request)) == [T1.partition]
        await trio.sleep(2)
        leader.answer(request)


async def test_refusals_of_one_answer_share_a_line(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    await site.follow_leader(T1, epoch=EPOCH)
    await following(site)
    while len(leader.reads(both := await leader.next())) < 2:
        pass
    refused = {"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH}
    leader.answer(both, p0=refused, p1=refused)
    leader.answer(await leader.next())
    await leader.next()
    [line] = [entry for entry in site.events.entries if entry["event"] == "fetch refused"]
    assert (line["partitions"], line["error"], line["leader"]) == (2, "UNKNOWN_LEADER_EPOCH", 2)


async def durable(site: ReplicaSite) -> Partition:
    """A follower of broker 2 whose three records are durable, as the checkpoint says."""
    partition = await following(site, (1, 1, 2))
    partition.log.flushed(partition.log.flush_plan()())
    site.logs.checkpoints.write_recovery_points()
    assert recovery_point(site) == 3
    return partition


def recovery_point(site: ReplicaSite) -> int:
    return read_offsets(site.disk, f"/logs/{RECOVERY_POINTS}")[T0]


async def test_a_consumer_that_waits_at_a_follower_is_answered_with_what_its_leader_says_is_committed(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    await following(site)
    hand = site.fetch((T0, 0), rack_id="r", wait_ms=60_000)
    leader.answer(await leader.next(), p0={"records": fetched(0)})
    request = await leader.next()
    assert not hand.is_answered, "nothing says that it is committed"
    leader.answer(request, p0={"high_watermark": 1})
    await leader.next()
    assert [(data.error_code, data.high_watermark, len(hand.sent)) for data in hand.fetched] == [(0, 1, 1)]


async def test_a_cut_below_the_recovery_point_is_made_once_the_checkpoint_says_less(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await durable(site)
    for round_ in range(2):
        request = await leader.next()
        assert leader.reads(request)[0].fetch_offset == 3, "nothing was cut yet"
        assert recovery_point(site) == (2 if round_ else 3)
        leader.answer(request, p0={"diverging_epoch": EpochEndOffset(1, 2)})
    assert leader.reads(await leader.next())[0].fetch_offset == 2
    assert site.event_names().count("truncated") == 1 and partition.log.log_end_offset == 2


async def test_a_cut_waits_for_its_own_disk_and_nobody_else_does(autojump_clock: MockClock) -> None:
    site = ReplicaSite(config={"log.dirs": "/logs,/more"}, topic={"min.insync.replicas": "1"})
    async with leader_of(site) as leader:
        partition = await durable(site)
        await site.follow_leader(T1, epoch=EPOCH)
        while len(leader.reads(request := await leader.next())) < 2:
            pass
        site.hang_disk("/logs")
        synced: list[str] = []
        site.disk.on_operation = lambda operation, path: synced.append(path) if "fsync" in operation else None
        leader.answer(request, p0={"diverging_epoch": EpochEndOffset(1, 2)})
        for offset in range(5):
            request = await leader.next()
            assert {index: asked.fetch_offset for index, asked in leader.reads(request).items()} == {1: offset}
            leader.answer(request, p1={"records": fetched(offset)})
        assert partition.log.log_end_offset == 3 and synced == [], "nothing is synced on the event loop"


async def test_many_cuts_of_one_answer_wait_for_one_checkpoint(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    diverging = {"diverging_epoch": EpochEndOffset(1, 1)}
    for tp in (T0, T1):
        await site.lead(tp, epoch=1)
        site.produce((tp, batch()), acks=1)
        await site.lead(tp, epoch=2)
        site.produce((tp, batch()), acks=1)
    for log in site.logs.logs.values():
        log.flushed(log.flush_plan()())
    site.logs.checkpoints.write_recovery_points()
    await site.order(site.state(T0, leader=2, epoch=EPOCH), site.state(T1, leader=2, epoch=EPOCH))
    renamed: list[str] = []
    site.disk.on_operation = lambda operation, path: renamed.append(path) if operation == "rename" else None
    for _ in range(2):
        request = await leader.next()
        assert {asked.fetch_offset for asked in leader.reads(request).values()} == {2}
        leader.answer(request, p0=diverging, p1=diverging)
    assert {asked.fetch_offset for asked in leader.reads(await leader.next()).values()} == {1}
    assert len([path for path in renamed if RECOVERY_POINTS in path]) == 1


async def test_a_cut_waits_for_a_damaged_index_and_nobody_else_does(autojump_clock: MockClock) -> None:
    site = ReplicaSite(topic={"min.insync.replicas": "1", "segment.bytes": "300"})
    async with leader_of(site) as leader, trio.open_nursery() as nursery:
        site.logs.rebuilds.on_the_spot_bytes = 0
        nursery.start_soon(site.data.rebuilds.run)
        partition = await following(site, (1,) * 8 + (2,))
        await site.follow_leader(T1, epoch=EPOCH)
        while len(leader.reads(request := await leader.next())) < 2:
            pass
        segment = partition.log.segments.holding(4)
        cut_at = segment.base_offset + 1
        segment.indexes.evict()
        site.disk.write(f"{segment.path}.index", b"nonsense")
        site.slow_computing(5.0)
        leader.answer(request, p0={"diverging_epoch": EpochEndOffset(1, cut_at)})
        for offset in range(5):
            request = await leader.next()
            assert {index: asked.fetch_offset for index, asked in leader.reads(request).items()} == {1: offset}
            leader.answer(request, p1={"records": fetched(offset)})
        assert partition.log.log_end_offset == 9
        await trio.sleep(5.1)
        leader.answer(await leader.next())  # of the other partition, asked for before
        request = await leader.next()
        assert leader.reads(request)[0].fetch_offset == 9
        leader.answer(request, p0={"diverging_epoch": EpochEndOffset(1, cut_at)})
        assert leader.reads(await leader.next())[0].fetch_offset == cut_at == partition.log.log_end_offset
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
async def test_without_its_checkpoint_no_cut_is_made(
    number: int, site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await durable(site)
    request = await leader.next()
    fault = site.disk.fail("open", "*recovery-point*.tmp", number)
    for _ in range(3):
        leader.answer(request, p0={"diverging_epoch": EpochEndOffset(1, 2)})
        if number == errno.EIO:
            with trio.move_on_after(5):
                request = await leader.next()
                continue
            assert partition.failed
            break
        request = await leader.next()
    assert partition.log.log_end_offset == 3 and recovery_point(site) == 3
    if number == errno.EMFILE:
        fault.cancel()
        for _ in range(2):
            leader.answer(request, p0={"diverging_epoch": EpochEndOffset(1, 2)})
            request = await leader.next()
        assert partition.log.log_end_offset == 2 and not partition.failed


async def test_a_cut_below_the_high_watermark_is_told_loudly(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site, (1, 1, 2))
    partition.learn_high_watermark(3)
    leader.answer(await leader.next(), p0={"diverging_epoch": EpochEndOffset(1, 2)})
    await leader.next()
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 2)
    assert "truncated below high watermark" in site.event_names()


async def test_an_answer_of_an_epoch_that_is_over_is_discarded(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site)
    first = await leader.next()
    for_later = partition.leader_epoch
    partition.become_follower(site.state(leader=2, epoch=EPOCH + 1))  # the poll is not given up here
    assert for_later == EPOCH
    leader.answer(first, p0={"records": fetched(0), "high_watermark": 1})
    second = await leader.next()
    assert leader.reads(second)[0].current_leader_epoch == EPOCH + 1
    assert (partition.log.log_end_offset, partition.high_watermark) == (0, 0)


async def test_an_answer_to_another_log_end_is_discarded(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site, (1, 1, 2))
    first = await leader.next()
    partition.truncate_to(1)
    leader.answer(first, p0={"records": fetched(3), "high_watermark": 3, "diverging_epoch": None})
    second = await leader.next()
    assert leader.reads(second)[0].fetch_offset == 1
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)
    assert "fetched batch refused" not in site.event_names(), "it is not even looked at"


async def test_an_answer_for_a_replica_that_was_stopped_meanwhile_is_discarded(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    await site.order(site.state(T0, leader=2, epoch=EPOCH), site.state(T1, leader=2, epoch=EPOCH))
    first = await leader.next()
    stopped = site.partition(T0)
    site.stop(T0, epoch=EPOCH)
    leader.answer(first, p0={"records": fetched(0)}, p1={"records": fetched(0)})
    assert set(leader.reads(await leader.next())) == {1}
    assert (stopped.log.log_end_offset, site.partition(T1).log.log_end_offset) == (0, 1)


async def test_an_answer_that_comes_after_becoming_leader_is_discarded(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site)
    await leader.next()
    await site.follow_leader(T1, epoch=EPOCH)
    second = await leader.next()
    assert set(leader.reads(second)) == {0, 1}
    await site.lead(epoch=EPOCH + 1)
    leader.answer(second, p0={"records": fetched(0)}, p1={"records": fetched(0)})
    third = await leader.next()
    assert set(leader.reads(third)) == {1}
    assert partition.log.log_end_offset == 0 and site.partition(T1).log.log_end_offset == 1


async def test_a_new_partition_interrupts_a_long_poll(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    await following(site)
    await leader.next()
    before = trio.current_time()
    await site.follow_leader(T1, epoch=EPOCH)
    second = await leader.next()
    assert set(leader.reads(second)) == {0, 1}
    assert trio.current_time() - before < 0.4, "the poll would have lasted half a second"


async def test_an_error_makes_its_partition_wait_and_no_other(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    await site.order(site.state(T0, leader=2, epoch=EPOCH), site.state(T1, leader=2, epoch=EPOCH))
    first = await leader.next()
    leader.answer(first, p0={"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}, p1={"records": fetched(0)})
    second = await leader.next()
    assert set(leader.reads(second)) == {1}
    assert second.message.max_wait_ms < 500, "it waits no longer than the other one's pause"
    await trio.sleep(0.1)
    leader.answer(second)
    third = await leader.next()
    assert set(leader.reads(third)) == {0, 1}


async def test_the_pause_after_errors_grows_to_its_limit_and_a_success_ends_it(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    await following(site)
    pauses = []
    for _ in range(9):
        leader.answer(await leader.next(), p0={"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH})
        asked_at = trio.current_time()
        request = await leader.next()
        pauses.append(trio.current_time() - asked_at)
        leader.answer(request, p0={"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH})
    assert all(later > 0.99 * earlier for earlier, later in pairwise(pauses))
    assert pauses[0] < 0.1 and 0.9 < pauses[-1] < 1.1
    leader.answer(await leader.next(), p0={"records": fetched(0)})
    leader.answer(await leader.next(), p0={"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH})
    asked_at = trio.current_time()
    await leader.next()
    assert trio.current_time() - asked_at < 0.1


async def test_a_follower_below_the_leaders_log_start_begins_there(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site, (1, 1))
    out_of_range = {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE, "log_start_offset": 50}
    leader.answer(await leader.next(), p0=out_of_range)
    asked = leader.reads(await leader.next())[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (50, -1, 0), "not on the disk yet"
    assert (partition.log.log_start_offset, partition.high_watermark) == (50, 50)


async def test_an_empty_log_above_the_leaders_end_begins_where_the_leaders_does(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    """It names no epoch, so nothing diverges: the leader can only say that there is no such offset."""
    partition = await following(site)
    partition.restart_at(50)
    leader.answer(await leader.next())  # to what was asked before
    for _ in range(2):  # once more when the checkpoint is written
        leader.answer(await leader.next(), p0={"error_code": ErrorCode.OFFSET_OUT_OF_RANGE, "log_start_offset": 7})
    assert leader.reads(await leader.next())[0].fetch_offset == 7
    assert (partition.log.log_start_offset, partition.high_watermark) == (7, 7)


async def test_an_offset_error_of_a_leader_that_begins_lower_cuts_nothing(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site, (1, 1))
    out_of_range = {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE, "log_start_offset": 0}
    leader.answer(await leader.next(), p0=out_of_range)
    await leader.next()
    assert partition.log.log_end_offset == 2


async def test_a_damaged_batch_is_not_appended_and_asked_for_again(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site)
    data = fetched(0)
    leader.answer(await leader.next(), p0={"records": data[:-1] + bytes([data[-1] ^ 1]), "high_watermark": 1})
    second = await leader.next()
    assert (leader.reads(second)[0].fetch_offset, partition.high_watermark) == (0, 0)
    assert "fetched batch refused" in site.event_names()


async def test_a_fetcher_comes_back_after_its_connection_broke(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    partition = await following(site)
    (await leader.next()).connection.close("the leader restarts")
    leader.answer(await leader.next(), p0={"records": fetched(0)})
    await leader.next()
    assert partition.log.log_end_offset == 1


async def test_a_leader_that_cannot_be_reached_is_tried_with_growing_pauses(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """Nobody listens there; with a new partition each second the attempts stay few."""
    async with trio.open_nursery() as nursery:
        await nursery.start(site.followers.run)
        await following(site)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    attempts = site.event_names().count("fetcher disconnected")
    assert 5 <= attempts <= 15
    assert "contact lost" not in site.event_names(), "there was none"


@pytest.mark.parametrize("under_way", ["connecting", "backing off"])
async def test_a_leader_at_another_address_is_asked_there_at_once(
    under_way: str, site: ReplicaSite, leader: Leader, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setitem(ADDRESSES, 2, ("old", 9092))
    site.network.node("old")
    if under_way == "connecting":
        site.network.cut_both("site", "old")
    await following(site)
    await trio.sleep(9.5)
    assert not leader.asked
    with trio.fail_after(0.001):
        site.followers.set_leaders([LiveLeader(2, "broker", 9092)])
        await leader.next()


@pytest.mark.parametrize("new", [LiveLeader(2, "elsewhere", 9092), LiveLeader(2, "broker", 9092, "of its next start")])
async def test_a_poll_at_an_old_address_or_of_an_earlier_start_is_given_up(
    new: LiveLeader, site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    await following(site)
    request = await leader.next()
    site.followers.set_leaders([LiveLeader(2, "broker", 9092), LiveLeader(3, "elsewhere", 9092)])
    await trio.sleep(0.01)
    assert not request.connection.closed, "its leader is where it was"
    site.followers.set_leaders([new])
    await trio.sleep(0.01)
    assert request.connection.closed


async def test_a_leader_that_refuses_all_fetches_is_tried_with_growing_pauses(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock
) -> None:
    await following(site)
    first = await leader.next()

    def refuse(request: RequestInHand) -> None:
        leader.asked += 1
        request.respond(FetchResponse([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    assert leader.pipeline is not None
    leader.pipeline.channel._handlers[ApiKey.FETCH] = refuse
    first.connection.close("again")
    leader.asked = 0
    await trio.sleep(5)
    assert 4 <= leader.asked <= 15


async def test_a_fetcher_without_partitions_ends(site: ReplicaSite, leader: Leader, autojump_clock: MockClock) -> None:
    await following(site)
    request = await leader.next()
    site.stop(epoch=EPOCH)
    await trio.sleep(0.1)
    assert not site.followers._fetchers
    assert request.connection.closed


async def test_more_partitions_than_one_fetch_may_name_take_turns(
    site: ReplicaSite, leader: Leader, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.broker.replication.follower.MAX_FETCHED", 2)
    await site.order(*(site.state(TopicPartition("t", number), leader=2, epoch=EPOCH) for number in range(5)))
    named = []
    for _ in range(5):
        request = await leader.next()
        named.append(sorted(leader.reads(request)))
        assert request.message.max_wait_ms == TURN_WAIT_MS, "the others do not wait long"
        leader.answer(request)
    assert named == [[0, 1], [2, 3], [0, 4], [1, 2], [3, 4]]
