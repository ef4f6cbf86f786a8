"""A log of a partition that has moved to other brokers: gone once its leader has everything, in any order of events."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from strandline.broker.upkeep.departed_replicas import RETRY_S, Answers, Departed, DepartedReplicas
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    OffsetForLeaderPartitionResponse,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from strandline.protocol.types import TopicId, TopicPartition
from strandline.storage.errors import DiskFull
from support.replica_site import BROKER, T0, T1, TOPIC_ID, ReplicaSite, batch

KEPT = "a replica that has moved to other brokers is kept: its leader lacks what was committed"


class Departures:
    """A broker whose log of T0 has five committed records of epoch 3. `leader_has`: the leader's end of that epoch;
    None: it does not answer."""

    def __init__(self, site: ReplicaSite) -> None:
        self.site = site
        self.leader_has: int | None = 5
        self.leader_ends: dict[int, int] = {}
        """Of some epochs, where that is something else."""
        self.code = ErrorCode.NONE
        self.asked: list[tuple[int, list[Departed]]] = []
        self.forgotten: list[tuple[str, TopicId]] = []
        self.gate = trio.Event()
        self.gate.set()
        self.departed = DepartedReplicas(site.logs, site.replicas, site.roles, self.answer, self.forget, site.log)

    async def answer(self, leader: int, departed: Sequence[Departed]) -> Answers:
        self.asked.append((leader, list(departed)))
        await self.gate.wait()
        if self.leader_has is None:
            return {}
        return {
            each.topic_partition: [
                OffsetForLeaderPartitionResponse(
                    each.topic_partition.partition, self.code, epoch, self.leader_ends.get(epoch, self.leader_has)
                )
                for epoch, _ in each.epochs
            ]
            for each in departed
        }

    def forget(self, topics: Iterable[tuple[str, TopicId]]) -> None:
        self.forgotten += topics

    def moved(self, *, epoch: int = 7, replicas: Sequence[int] = (2, 3), topic_id: TopicId = TOPIC_ID) -> None:
        state = UpdateMetadataPartitionState(0, 1, 2, epoch, list(replicas), 0, list(replicas))
        self.site.update_metadata(state, topic_id=topic_id)

    def deleted(self, *, replicas: Sequence[int] = (2, 3), topic_id: TopicId = TOPIC_ID) -> None:
        """Somebody deletes the topic."""
        state = UpdateMetadataPartitionState(0, 1, LEADER_DURING_DELETE, 8, list(replicas), 0, list(replicas))
        self.site.update_metadata(state, topic_id=topic_id)

    def strays_told(self) -> list[list[str]]:
        event = "logs of partitions that are not there are kept"
        return [entry["partitions"] for entry in self.site.events.entries if entry["event"] == event]

    def told_all(self) -> None:
        """A controller's first word, in one request."""
        self.site.replicas.update_metadata(UpdateMetadataRequest(9, 1, 1, [], [], all_topics=["t"], has_told_all=True))

    @property
    def is_there(self) -> bool:
        return self.site.logs.get(T0) is not None and self.site.disk.exists("/logs/t-0")


@pytest.fixture
async def departures(site: ReplicaSite, autojump_clock: MockClock) -> Departures:
    await site.lead(epoch=3, replicas=(BROKER,), isr=(BROKER,))
    site.produce((T0, batch(5)))
    assert site.partition().high_watermark == 5
    return Departures(site)


@pytest.fixture
def not_hosted(departures: Departures) -> Departures:
    """As after a start, or a StopReplica that was to keep the log."""
    departures.site.stop(epoch=3)
    assert T0 not in departures.site.replicas.partitions
    return departures


async def test_it_goes_once_the_leader_has_all_that_was_committed(
    departures: Departures, autojump_clock: MockClock
) -> None:
    departures.moved()
    assert await departures.departed.remove_all()
    assert not departures.is_there
    assert T0 not in departures.site.replicas.partitions
    assert departures.forgotten == [("t", TOPIC_ID)]
    [(leader, [asked])] = departures.asked
    assert (leader, asked.leader_epoch, asked.epochs, asked.committed) == (2, 7, ((3, 5),), 5)


async def test_it_goes_also_where_it_is_not_hosted(not_hosted: Departures, autojump_clock: MockClock) -> None:
    not_hosted.moved()
    assert await not_hosted.departed.remove_all()
    assert not not_hosted.is_there


async def test_it_stays_where_its_leader_lacks_what_was_committed(
    departures: Departures, autojump_clock: MockClock
) -> None:
    """An old copy of ZooKeeper, by which others are the replicas, who have nothing any more."""
    departures.leader_has = 4
    departures.moved()
    assert await departures.departed.remove_all()
    assert departures.is_there
    assert departures.site.event_names().count(KEPT) == 1


async def test_it_stays_where_its_leader_lacks_some_of_it_and_no_checkpoint_says_what_is_committed(
    not_hosted: Departures,
    autojump_clock: MockClock,
) -> None:
    del not_hosted.site.logs.high_watermarks[T0]
    not_hosted.leader_has = 4
    not_hosted.moved()
    assert await not_hosted.departed.remove_all()
    assert not_hosted.is_there


async def test_it_stays_where_its_leader_lacks_what_an_earlier_epoch_committed(
    departures: Departures, autojump_clock: MockClock
) -> None:
    """Epochs are given out a second time under an old copy of ZooKeeper: the leader's latest one has more than ours."""
    site = departures.site
    await site.lead(epoch=4, replicas=(BROKER,), isr=(BROKER,))
    site.produce((T0, batch(5)))
    departures.leader_ends = {3: 4, 4: 100}
    departures.moved()
    assert await departures.departed.remove_all()
    assert departures.is_there
    assert departures.site.event_names().count(KEPT) == 1
    departures.leader_ends = {3: 5, 4: 10}
    assert await departures.departed.remove_all()
    assert not departures.is_there


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, None])
async def test_it_stays_until_the_leader_of_that_epoch_says_so(
    code: ErrorCode | None, departures: Departures, autojump_clock: MockClock
) -> None:
    departures.leader_has = None if code is None else 5
    departures.code = code or ErrorCode.NONE
    departures.moved()
    assert not await departures.departed.remove_all()
    assert departures.is_there
    departures.leader_has, departures.code = 5, ErrorCode.NONE
    assert await departures.departed.remove_all()
    assert not departures.is_there


async def test_what_knows_of_a_later_epoch_stays(departures: Departures, autojump_clock: MockClock) -> None:
    departures.moved(epoch=2)
    assert await departures.departed.remove_all()
    await departures.site.order(departures.site.state(epoch=8, leader=2, isr=(2, 3)))
    departures.moved(epoch=7)
    assert await departures.departed.remove_all()
    assert (departures.is_there, departures.asked) == (True, [])


async def test_a_log_with_a_later_epoch_than_the_metadata_stays_also_where_it_is_not_hosted(
    not_hosted: Departures,
    autojump_clock: MockClock,
) -> None:
    not_hosted.moved(epoch=2)
    assert await not_hosted.departed.remove_all()
    assert (not_hosted.is_there, not_hosted.asked) == (True, [])
    response = not_hosted.site.stop(epoch=2, delete=True)
    assert [each.error_code for each in response.partition_errors] == [ErrorCode.FENCED_LEADER_EPOCH]
    assert not_hosted.is_there, "nor does a controller's order of that epoch delete it"


async def test_a_log_of_another_topic_of_that_name_stays(departures: Departures, autojump_clock: MockClock) -> None:
    departures.moved(topic_id=b"\x07" * 16)
    assert await departures.departed.remove_all()
    assert (departures.is_there, departures.asked) == (True, [])


async def test_who_is_a_replica_keeps_it(departures: Departures, autojump_clock: MockClock) -> None:
    departures.moved(replicas=(2, BROKER))
    assert await departures.departed.remove_all()
    assert (departures.is_there, departures.asked) == (True, [])


@pytest.mark.parametrize("hosted", [True, False])
@pytest.mark.parametrize("by", ["role", "metadata"])
async def test_who_becomes_a_replica_again_while_the_leader_is_asked_keeps_it(
    hosted: bool, by: str, departures: Departures, autojump_clock: MockClock
) -> None:
    site = departures.site
    if not hosted:
        site.stop(epoch=3)
    departures.moved()
    departures.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(departures.departed.remove_all)
        await trio.testing.wait_all_tasks_blocked()
        assert len(departures.asked) == 1
        if by == "role":
            await site.order(site.state(epoch=8, leader=2, isr=(2, 3), replicas=(2, 3, BROKER)))
        else:
            departures.moved(epoch=8, replicas=(2, 3, BROKER))
        departures.gate.set()
    assert departures.is_there


async def test_who_is_back_takes_a_role_with_a_new_log(departures: Departures, autojump_clock: MockClock) -> None:
    departures.moved()
    assert await departures.departed.remove_all()
    await departures.site.order(departures.site.state(epoch=8, leader=2, isr=(2, 3), replicas=(2, 3, BROKER)))
    assert departures.site.partition().log.log_end_offset == 0


async def test_an_empty_log_goes_whatever_it_was_told(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.follow_leader(epoch=3)
    departures = Departures(site)
    departures.leader_has = 0
    departures.moved()
    assert await departures.departed.remove_all()
    assert not departures.is_there


@pytest.mark.parametrize("count", [0, 5])
async def test_of_logs_without_a_topic_id_only_an_empty_one_goes_and_an_operator_is_told_of_the_others(
    count: int, site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """The power went before `partition.metadata` was on the disk, and the partition moved away meanwhile."""
    await site.lead(epoch=3, replicas=(BROKER,), isr=(BROKER,))
    if count:
        site.produce((T0, batch(count)))
    site.stop(epoch=3)
    log = site.logs.get(T0)
    assert log is not None
    log.topic_id = None
    departures = Departures(site)
    departures.moved()
    assert await departures.departed.remove_all()
    assert departures.is_there == bool(count)
    kept = "a replica that other brokers have is kept: nothing says of which topic its records are"
    assert (kept in site.event_names()) == bool(count)


async def test_a_disk_that_refuses_is_tried_again(
    departures: Departures, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    full = departures.site.disk.fail("rename", "/logs/t-0*", errno.ENOSPC)
    nursery.start_soon(departures.departed.run)
    departures.moved()
    await trio.sleep(3 * RETRY_S)
    assert departures.is_there
    full.cancel()
    await trio.sleep(3 * RETRY_S)
    assert not departures.is_there


async def test_nothing_is_looked_at_while_all_logs_are_where_they_belong(
    site: ReplicaSite, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await site.lead(T0)
    await site.lead(T1)
    departures = Departures(site)
    nursery.start_soon(departures.departed.run)
    departures.moved(replicas=(BROKER, 2))
    await trio.sleep(3 * RETRY_S)
    assert departures.asked == []
    departures.moved(epoch=8)
    await trio.sleep(3 * RETRY_S)
    assert len(departures.asked) == 1
    assert not departures.is_there
    assert site.logs.get(T1) is not None


async def test_a_log_that_the_disk_did_not_let_go_makes_room_for_a_new_one(
    departures: Departures, autojump_clock: MockClock
) -> None:
    site = departures.site
    full = site.disk.fail("rename", "/logs/t-0*", errno.ENOSPC)
    departures.moved()
    assert not await departures.departed.remove_all()
    back = site.state(epoch=8, leader=2, isr=(2, 3), replicas=(2, 3, BROKER))
    for code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NONE):
        [answer] = (await site.order(back)).partition_errors
        assert answer.error_code == code
        full.cancel()
    assert site.partition().log.log_end_offset == 0
    assert site.partition().log.failure is None


# --- topics that are deleted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_known", [True, False], ids=["known before", "heard of at a start"])
async def test_a_log_that_was_left_here_goes_with_its_topic_whatever_a_leader_has(
    is_known: bool, not_hosted: Departures, autojump_clock: MockClock
) -> None:
    not_hosted.leader_has = None
    if is_known:
        not_hosted.moved()
        assert not await not_hosted.departed.remove_all()
    not_hosted.deleted()
    assert await not_hosted.departed.remove_all()
    assert not not_hosted.is_there
    assert not_hosted.forgotten == [("t", TOPIC_ID)]


async def test_a_log_of_another_topic_than_the_one_that_is_deleted_stays(
    not_hosted: Departures, autojump_clock: MockClock
) -> None:
    not_hosted.deleted(topic_id=b"\x07" * 16)
    assert await not_hosted.departed.remove_all()
    assert not_hosted.is_there


async def test_who_holds_a_topic_that_is_deleted_waits_for_the_order(
    departures: Departures, autojump_clock: MockClock
) -> None:
    departures.deleted(replicas=(2, BROKER))
    assert await departures.departed.remove_all()
    assert departures.is_there


async def test_a_topic_that_is_not_deleted_after_all_keeps_its_log(
    not_hosted: Departures, autojump_clock: MockClock
) -> None:
    not_hosted.leader_has = None
    not_hosted.deleted()
    not_hosted.moved(epoch=9)
    assert not await not_hosted.departed.remove_all()
    assert not_hosted.is_there


async def test_a_disk_that_refuses_is_tried_again_also_when_the_topic_is_gone(
    departures: Departures, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    full = departures.site.disk.fail("rename", "/logs/t-0*", errno.ENOSPC)
    nursery.start_soon(departures.departed.run)
    departures.deleted()
    await trio.sleep(3 * RETRY_S)
    assert departures.is_there
    full.cancel()
    await trio.sleep(3 * RETRY_S)
    assert not departures.is_there


async def test_that_a_topic_is_not_named_deletes_nothing_and_is_told(
    departures: Departures, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    nursery.start_soon(departures.departed.run)
    for there in (["t"], ["other"]):
        request = UpdateMetadataRequest(9, 1, 1, [], [], all_topics=there, has_told_all=True)
        departures.site.replicas.update_metadata(request)
        await trio.sleep(3 * RETRY_S)
        assert departures.is_there
    assert departures.strays_told() == [["t-0"]]


NEW_LOG = TopicPartition("t", 1)


def begin_without_room(site: ReplicaSite, tp: TopicPartition) -> None:
    full = site.disk.fail("open", f"/logs/{tp}/*.log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        site.logs.create(tp, TOPIC_ID)
    full.cancel()
    site.logs.directories.look_for_room("/logs")


async def test_what_was_begun_and_cannot_go_holds_up_nothing_else(
    departures: Departures, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    site = departures.site
    nursery.start_soon(departures.departed.run)
    await trio.sleep(1)
    for number in (1, 2):
        begin_without_room(site, TopicPartition("t", number))
    stuck = site.disk.fail("rmdir", "/logs/t-1", errno.ENOSPC)
    states = [UpdateMetadataPartitionState(number, 1, 2, 7, [2, 3], 0, [2, 3]) for number in (1, 2)]
    site.update_metadata(*states)
    await trio.sleep(3 * RETRY_S)
    assert site.disk.exists("/logs/t-1") and not site.disk.exists("/logs/t-2")
    stuck.cancel()
    await trio.sleep(3 * RETRY_S)
    assert not site.disk.exists("/logs/t-1")


@pytest.mark.parametrize(
    ("replicas", "topic_id", "stays"),
    [((2, 3), TOPIC_ID, False), ((2, BROKER), bytes(16), False), ((2, BROKER), TOPIC_ID, True)],
)
async def test_what_was_begun_of_a_log_that_has_moved_goes_though_no_order_came(
    departures: Departures,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    replicas: Sequence[int],
    topic_id: TopicId,
    stays: bool,
) -> None:
    site = departures.site
    begin_without_room(site, NEW_LOG)
    nursery.start_soon(departures.departed.run)
    state = UpdateMetadataPartitionState(1, 1, 2, 7, list(replicas), 0, list(replicas))
    departures.told_all()
    site.update_metadata(state, topic_id=topic_id)
    await trio.sleep(3 * RETRY_S)
    assert site.disk.exists("/logs/t-1") == (NEW_LOG in site.logs.begun) == stays


@pytest.mark.parametrize(
    ("partition", "replicas", "topic_id"),
    [
        (0, (2, 3), bytes(16)),  # made anew under that name, on other brokers
        (1, (2, BROKER), bytes(16)),  # made anew with fewer partitions
        (1, (2, BROKER), TOPIC_ID),  # by an old copy of ZooKeeper it has not grown yet
    ],
)
async def test_that_a_topic_of_its_name_does_not_have_it_is_told_once(
    not_hosted: Departures,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    partition: int,
    replicas: Sequence[int],
    topic_id: TopicId,
) -> None:
    nursery.start_soon(not_hosted.departed.run)
    not_hosted.site.replicas.update_metadata(
        UpdateMetadataRequest(9, 1, 1, [], [], all_topics=["t"], has_told_all=True)
    )
    state = UpdateMetadataPartitionState(partition, 1, 2, 7, list(replicas), 0, list(replicas))
    not_hosted.site.update_metadata(state, topic_id=topic_id)
    await trio.sleep(3 * RETRY_S)
    assert not_hosted.is_there and not_hosted.strays_told() == [["t-0"]]


async def test_of_a_log_that_is_hosted_or_goes_with_its_topic_nothing_is_told(
    departures: Departures, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    nursery.start_soon(departures.departed.run)
    departures.site.replicas.update_metadata(
        UpdateMetadataRequest(9, 1, 1, [], [], all_topics=["t"], has_told_all=True)
    )
    departures.moved(replicas=(2, 3), topic_id=bytes(16))
    await trio.sleep(3 * RETRY_S)
    assert departures.is_there and departures.strays_told() == []
    full = departures.site.disk.fail("rename", "/logs/t-0*", errno.ENOSPC)
    departures.site.stop(epoch=3)
    departures.deleted()
    departures.site.replicas.update_metadata(
        UpdateMetadataRequest(9, 1, 1, [], [], all_topics=["t"], has_told_all=True)
    )
    departures.moved(replicas=(2, 3), topic_id=bytes(16))
    await trio.sleep(3 * RETRY_S)
    assert departures.strays_told() == []
    full.cancel()


async def test_a_log_that_has_no_topic_id_is_told_once(
    not_hosted: Departures, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log = not_hosted.site.logs.get(T0)
    assert log is not None
    log.topic_id = None
    nursery.start_soon(not_hosted.departed.run)
    not_hosted.site.replicas.update_metadata(
        UpdateMetadataRequest(9, 1, 1, [], [], all_topics=["t"], has_told_all=True)
    )
    not_hosted.moved()
    await trio.sleep(3 * RETRY_S)
    assert not_hosted.is_there and not_hosted.strays_told() == []


async def test_what_has_not_been_told_yet_is_no_stray(
    not_hosted: Departures, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A first word in several requests, of which one is late, and a topic that lies in two of them."""
    nursery.start_soon(not_hosted.departed.run)
    first = UpdateMetadataPartitionState(1, 1, 2, 7, [2, BROKER], 0, [2, BROKER])
    not_hosted.site.replicas.update_metadata(UpdateMetadataRequest(9, 1, 1, [], [], all_topics=["t"]))
    not_hosted.site.update_metadata(first)
    await trio.sleep(3 * RETRY_S)
    assert not_hosted.strays_told() == []
    not_hosted.moved(replicas=(2, BROKER))
    not_hosted.site.replicas.update_metadata(UpdateMetadataRequest(9, 1, 1, [], [], has_told_all=True))
    await trio.sleep(3 * RETRY_S)
    assert not_hosted.is_there and not_hosted.strays_told() == []


async def test_of_a_log_that_an_order_will_put_aside_nothing_is_told(
    not_hosted: Departures, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    nursery.start_soon(not_hosted.departed.run)
    not_hosted.site.replicas.update_metadata(
        UpdateMetadataRequest(9, 1, 1, [], [], all_topics=["t"], has_told_all=True)
    )
    not_hosted.moved(replicas=(2, BROKER), topic_id=bytes(16))
    await trio.sleep(3 * RETRY_S)
    assert not_hosted.is_there and not_hosted.strays_told() == []
