"""ISR changes against an in-memory ZooKeeper: conditional, repeated as they are, adopted, frozen, announced."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.errors import ErrorCode
from strandline.protocol.history.lines import Event, Kind
from strandline.protocol.types import NO_BROKER
from strandline.protocol.znodes import (
    BrokerIncarnationZnode,
    IsrChangeNotificationZnode,
    PartitionStateZnode,
    TopicIdZnode,
    encode_uuid,
)
from strandline.runtime.coordination import Check, CoordinationError, Create, Delete, SetData, TransactionFailed
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from support.change_lines import read_entries
from support.replica_site import T0, T1, TOPIC_ID, ReplicaSite, batch

EPOCH = 4
PATH = PartitionStateZnode.path("t", 0)
ID_PATH = TopicIdZnode.path("t", TOPIC_ID)


class Cluster:
    """One leading broker, its ZooKeeper, and somebody else who writes there."""

    def __init__(self, zookeeper: MemoryZooKeeper, client: MemoryCoordination, admin: MemoryCoordination) -> None:
        self.zookeeper = zookeeper
        self.client = client
        self.admin = admin
        self.site = ReplicaSite(coordination=client)
        self.transactions: list[list[object]] = []
        inner = client.multi_many

        async def recorded(transactions):
            self.transactions.extend(list(one) for one in transactions)
            return await inner(transactions)

        client.multi_many = recorded

    @property
    def leadership(self):
        return self.site.partition().leadership

    async def lead(self, isr: Sequence[int]) -> None:
        """Lead t-0 by what stands in ZooKeeper."""
        await self.admin.create(PATH, self.encoded(isr), parents=True)
        await self.admin.create(ID_PATH)
        await self.site.lead(epoch=EPOCH, isr=isr, zk_version=0)

    def encoded(self, isr: Sequence[int], *, leader: int = 1, epoch: int = EPOCH) -> bytes:
        return PartitionStateZnode(controller_epoch=1, leader=leader, leader_epoch=epoch, isr=list(isr)).encode()

    def stored(self) -> tuple[list[int], int]:
        """(ISR, version) in ZooKeeper."""
        znode = self.zookeeper.tree.get(PATH)
        return list(PartitionStateZnode.decode(PATH, znode.data).isr), znode.stat.version

    def join(self, broker_id: int = 3, *, incarnation: int = 1) -> None:
        """A follower has caught up, which makes the leader propose it."""
        self.site.follow(broker_id, self.site.partition().log.log_end_offset, replica_epoch=incarnation)
        assert self.leadership.proposal is not None

    async def start_broker(self, broker_id: int) -> None:
        """Its incarnation becomes 1, then 2 …"""
        path = BrokerIncarnationZnode.path(broker_id)
        if await self.admin.exists(path) is None:
            await self.admin.create(path, parents=True)
        stat = await self.admin.exists(path)
        assert stat is not None
        await self.admin.set(path, b"", stat.version)

    def announced(self) -> list[list[tuple[str, int]]]:
        folder = IsrChangeNotificationZnode.SEQUENCE_PATH.rpartition("/")[0]
        names = self.zookeeper.tree.children(folder)
        znodes = [json.loads(self.zookeeper.tree.get(f"{folder}/{name}").data) for name in names]
        return [[(p["topic"], p["partition"]) for p in znode["partitions"]] for znode in znodes]


@pytest.fixture
async def cluster(autojump_clock, nursery) -> AsyncIterator[Cluster]:
    zookeeper = MemoryZooKeeper(latency_s=0.01)
    client, admin = zookeeper.client(), zookeeper.client()
    await client.start()
    await admin.start()
    await admin.create(IsrChangeNotificationZnode.SEQUENCE_PATH.rpartition("/")[0], parents=True)
    one = Cluster(zookeeper, client, admin)
    await one.start_broker(3)
    await one.lead((1, 2))
    nursery.start_soon(one.site.isr_updates.run)
    yield one


async def test_an_expansion_checks_the_incarnation_and_sets_the_state_at_the_known_version(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.join()
    await trio.sleep(0.1)
    assert cluster.stored() == ([1, 2, 3], 1)
    assert (cluster.leadership.isr, cluster.leadership.zk_version) == ((1, 2, 3), 1)
    assert cluster.leadership.proposal is None
    (check, same_topic, write) = cluster.transactions[0]
    assert check == Check(BrokerIncarnationZnode.path(3), 1)
    assert same_topic == Check(ID_PATH, -1)
    assert isinstance(write, SetData) and write.version == 0


async def test_the_next_change_goes_by_the_version_that_the_last_one_made(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.join()
    await trio.sleep(0.1)
    cluster.site.produce((T0, batch()), acks=1)
    cluster.site.partition().check_in_sync(trio.current_time() + 1000)
    await trio.sleep(0.1)
    assert cluster.stored() == ([1], 2)
    assert cluster.leadership.zk_version == 2


async def test_a_follower_that_was_restarted_since_its_fetch_does_not_join(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.start_broker(3)
    cluster.join(incarnation=1)
    await trio.sleep(0.1)
    assert cluster.stored() == ([1, 2], 0)
    assert cluster.leadership.proposal is None and not cluster.leadership.frozen
    cluster.join(incarnation=2)
    await trio.sleep(0.1)
    assert cluster.stored() == ([1, 2, 3], 1), "its new life may"


async def test_a_follower_without_an_incarnation_does_not_join(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.admin.delete(BrokerIncarnationZnode.path(3))
    cluster.join()
    await trio.sleep(0.1)
    assert cluster.stored() == ([1, 2], 0)
    assert cluster.leadership.proposal is None


async def test_a_write_whose_answer_was_lost_is_repeated_as_it_was_and_found_done(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.zookeeper.drop_next_reply("/")
    cluster.join()
    await trio.sleep(2)
    assert cluster.stored() == ([1, 2, 3], 1), "applied once"
    assert (cluster.leadership.isr, cluster.leadership.zk_version) == ((1, 2, 3), 1)
    assert len(cluster.transactions) == 2
    assert cluster.transactions[0] == cluster.transactions[1]


async def test_isr_changes_go_on_after_a_lost_answer(cluster: Cluster, autojump_clock: MockClock) -> None:
    cluster.zookeeper.drop_next_reply("/")
    cluster.join()
    await trio.sleep(2)
    cluster.site.produce((T0, batch()), acks=1)
    cluster.site.partition().check_in_sync(trio.current_time() + 1000)
    await trio.sleep(0.1)
    assert cluster.stored() == ([1], 2)


async def test_a_write_that_never_arrived_is_repeated(cluster: Cluster, autojump_clock: MockClock) -> None:
    cluster.zookeeper.drop_next_request("/")
    cluster.join()
    await trio.sleep(2)
    assert cluster.stored() == ([1, 2, 3], 1)
    assert cluster.transactions[0] == cluster.transactions[1]


async def test_while_zookeeper_is_away_the_union_holds_the_high_watermark(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.zookeeper.stop()
    cluster.join()
    cluster.site.produce((T0, batch()), acks=1)
    cluster.site.follow(2, 1)
    await trio.sleep(60)
    assert cluster.leadership.maximal_isr == {1, 2, 3}
    assert cluster.leadership.high_watermark == 0
    cluster.zookeeper.start()
    await trio.sleep(5)
    assert cluster.stored()[0] == [1, 2, 3]


async def test_another_isr_of_this_leader_and_epoch_is_adopted(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.admin.set(PATH, cluster.encoded((1,)), 0)
    cluster.join()
    await trio.sleep(0.1)
    assert (cluster.leadership.isr, cluster.leadership.zk_version) == ((1,), 1)
    assert cluster.leadership.proposal is None and not cluster.leadership.frozen
    assert cluster.stored() == ([1], 1), "what stood there was not written over"


async def test_a_member_that_is_no_replica_is_adopted_and_removed(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.admin.set(PATH, cluster.encoded((1, 2, 7)), 0)
    cluster.join()
    await trio.sleep(0.1)
    assert (cluster.leadership.isr, cluster.leadership.zk_version) == ((1, 2), 1)
    cluster.site.partition().check_in_sync(trio.current_time())
    await trio.sleep(0.1)
    assert cluster.stored() == ([1, 2], 2)


@pytest.mark.parametrize("leader", [2, NO_BROKER])
async def test_who_reads_that_somebody_else_leads_by_now_tells_whoever_waits(
    leader: int, cluster: Cluster, autojump_clock: MockClock
) -> None:
    """The controller may not reach this broker, and clients do: they are to look for the leader elsewhere."""
    hand = cluster.site.produce((T0, batch()), timeout_ms=60_000)
    await cluster.admin.set(PATH, cluster.encoded((1, 2), leader=leader, epoch=EPOCH + 1), 0)
    cluster.join()
    await trio.sleep(0.1)
    (outcome,) = hand.outcomes
    assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.site.partition().leadership is None
    await cluster.site.lead(epoch=EPOCH + 2, isr=(1, 2), zk_version=1)
    assert not cluster.leadership.frozen


@pytest.mark.parametrize(("leader", "epoch"), [(1, EPOCH + 1), (2, EPOCH)])
async def test_another_leader_or_epoch_freezes_the_leader(
    leader: int, epoch: int, cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.site.produce((T0, batch()), acks=1)
    await cluster.admin.set(PATH, cluster.encoded((1, 2), leader=leader, epoch=epoch), 0)
    cluster.join()
    await trio.sleep(0.1)
    assert cluster.leadership.frozen
    assert cluster.leadership.maximal_isr == {1, 2, 3}
    attempts = len(cluster.transactions)
    cluster.site.partition().check_in_sync(trio.current_time() + 1000)
    await trio.sleep(60)
    assert len(cluster.transactions) == attempts, "it proposes nothing until LeaderAndIsr comes"
    await cluster.site.lead(epoch=EPOCH + 2, isr=(1, 2), zk_version=1)
    assert not cluster.leadership.frozen


async def test_a_partition_that_is_gone_from_zookeeper_freezes_its_leader(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.admin.delete(PATH)
    cluster.join()
    await trio.sleep(0.1)
    assert cluster.leadership.frozen


@pytest.mark.parametrize("has_an_id", [True, False])
async def test_the_state_of_another_topic_of_that_name_is_not_touched(
    has_an_id: bool, cluster: Cluster, autojump_clock: MockClock
) -> None:
    """Same leader, epoch and version: only the id tells them apart."""
    anew = [Delete(ID_PATH), Delete(PATH), Create(PATH, cluster.encoded((1, 4)))]
    if has_an_id:
        anew.append(Create(TopicIdZnode.path("t", b"another topic id")))
    await cluster.admin.multi(anew)
    cluster.join()
    await trio.sleep(0.1)
    assert cluster.stored() == ([1, 4], 0)
    assert cluster.leadership.frozen
    assert cluster.leadership.maximal_isr == {1, 2, 3}


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_write_that_the_server_could_not_do_is_repeated(
    in_transaction: bool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Whatever it answers that says nothing of the state (a server out of memory, a request it throttles)."""
    write, answers = cluster.client.multi_many, []
    error = CoordinationError("multi: SystemZookeeperError")

    async def fail_twice(transactions):
        if len(answers) == 2:
            return await write(transactions)
        answers.append(TransactionFailed("multi failed", 0, error) if in_transaction else error)
        return [answers[-1] for _ in transactions]

    monkeypatch.setattr(cluster.client, "multi_many", fail_twice)
    cluster.join()
    await trio.sleep(1)
    assert len(answers) == 2
    assert cluster.stored() == ([1, 2, 3], 1)
    assert cluster.leadership.isr == (1, 2, 3) and not cluster.leadership.frozen


async def test_a_state_that_cannot_be_read_now_is_read_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    await cluster.admin.set(PATH, cluster.encoded((1,)), 0)
    read, failures = cluster.client.get, []

    async def fail_for_a_second(path, watch=None):
        if trio.current_time() > until:
            return await read(path, watch)
        failures.append(path)
        raise CoordinationError("get: SystemZookeeperError")

    until = trio.current_time() + 1
    monkeypatch.setattr(cluster.client, "get", fail_for_a_second)
    cluster.join()
    await trio.sleep(2)
    assert cluster.leadership.isr == (1,) and not cluster.leadership.frozen
    assert 5 <= len(failures) <= 10, "not without pauses"


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_became_of_a_proposal_is_counted_once(
    cluster: Cluster, autojump_clock: MockClock, restarts: bool
) -> None:
    if restarts:
        await cluster.start_broker(3)
    cluster.join()
    await trio.sleep(1)
    counts = cluster.site.isr_updates.counts
    assert (counts.expands, counts.shrinks, counts.failed) == ((0, 0, 1) if restarts else (1, 0, 0))


async def test_an_unreadable_state_freezes_the_leader(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.admin.set(PATH, b"not json", 0)
    cluster.join()
    await trio.sleep(0.1)
    assert cluster.leadership.frozen


async def test_a_proposal_of_a_leadership_that_is_over_is_not_written(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.join()
    await cluster.site.follow_leader(epoch=EPOCH + 1)
    await trio.sleep(1)
    assert cluster.stored() == ([1, 2], 0)
    assert cluster.transactions == []


async def test_a_proposal_of_a_leadership_that_ended_during_an_outage_is_not_repeated(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    cluster.zookeeper.drop_next_request("/")
    cluster.join()
    await trio.sleep(0.02)
    await cluster.site.follow_leader(epoch=EPOCH + 1)
    await trio.sleep(5)
    assert cluster.stored() == ([1, 2], 0)
    assert len(cluster.transactions) == 1


async def test_the_controller_is_told_of_all_changes_at_once(cluster: Cluster, autojump_clock: MockClock) -> None:
    path = PartitionStateZnode.path("t", 1)
    await cluster.admin.create(path, cluster.encoded((1, 2)), parents=True)
    await cluster.site.lead(T1, epoch=EPOCH, isr=(1, 2), zk_version=0)
    cluster.join()
    cluster.site.follow(3, 0, T1)
    await trio.sleep(1)
    assert cluster.announced() == [[("t", 0), ("t", 1)]]


async def test_a_rejected_proposal_is_not_announced(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.start_broker(3)
    cluster.join(incarnation=1)
    await trio.sleep(1)
    assert cluster.announced() == []


async def test_an_announcement_that_got_no_answer_is_made_again(cluster: Cluster, autojump_clock: MockClock) -> None:
    cluster.join()
    await trio.sleep(0.05)
    cluster.zookeeper.drop_next_request("/isr_change_notification")
    await trio.sleep(5)
    assert cluster.announced() == [[("t", 0)]]


async def test_the_log_has_the_state_that_the_leader_wrote(cluster: Cluster, autojump_clock: MockClock) -> None:
    cluster.join()
    await trio.sleep(0.1)
    lines = read_entries(cluster.site.events.entries)
    (event,) = [each for line in lines for each in line.events if each.kind is Kind.CHANGED]
    state = ("t", encode_uuid(TOPIC_ID), 0, 1, EPOCH, 1, (1, 2, 3), (1, 2, 3))
    partition = cluster.site.partition()
    offsets = {"log_end_offset": partition.log.log_end_offset, "high_watermark": partition.high_watermark}
    assert event == Event(Kind.CHANGED, event.time_ms, 1, *state, min_isr=2, **offsets)


async def test_a_change_that_is_known_only_after_the_next_election_is_logged_as_of_the_term_that_wrote_it(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    """Else the history of the partition would have that broker as the leader of the next term."""
    cluster.join()
    await trio.sleep(0.0075)  # it is written, and the answer under way
    assert cluster.stored() == ([1, 2, 3], 1) and cluster.leadership.proposal is not None
    await cluster.site.lead(epoch=EPOCH + 1, isr=(1, 2, 3), zk_version=2)
    await trio.sleep(0.1)
    events = [each for line in read_entries(cluster.site.events.entries) for each in line.events]
    assert [(each.leader_epoch, each.zk_version) for each in events if each.kind is Kind.CHANGED] == [(EPOCH, 1)]
