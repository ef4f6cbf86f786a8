"""Registration against an in-memory ZooKeeper: incarnation, taking over, expiry, a start that may have lost data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import pytest
import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from strandline.broker.membership.cluster_identity import find_cluster
from strandline.broker.membership.registration import SESSIONS_AWAITED, BrokerIdTaken, Registration
from strandline.protocol.znodes import (
    CONTROLLER_EPOCH_PATH,
    OUR_CONTROLLER_EPOCH_PATH,
    BrokerEndpoint,
    BrokerIdZnode,
    BrokerIncarnationZnode,
    PartitionStateZnode,
    TopicIdZnode,
)
from strandline.runtime.coordination import Create, Delete
from strandline.runtime.logging import RateLimited
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper

PATH = BrokerIdZnode.path(1)
MY_FOLDER, OTHER_FOLDER = "folder-of-broker-1", "some-other-folder"


def znode(folder: str = MY_FOLDER, port: int = 9092) -> BrokerIdZnode:
    return BrokerIdZnode(endpoints=(BrokerEndpoint("PLAINTEXT", "host", port, "PLAINTEXT"),), lock_id=folder)


def says(lossy: bool) -> Callable[[int, bool], Awaitable[bool]]:
    """A disk that may have lost data, or has not."""

    async def begin_life(_: int, __: bool) -> bool:
        await trio.lowlevel.checkpoint()
        return lossy

    return begin_life


class Site:
    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        self.zookeeper = zookeeper

    async def start(self, *, lossy: bool = False, folder: str = MY_FOLDER) -> tuple[Registration, MemoryCoordination]:
        """Steps 1-3 of a start, on a session of its own."""
        client = self.zookeeper.client()
        await client.start()
        registration = Registration(1, folder, client, structlog.get_logger())
        await find_cluster(client, UUID(int=7), RateLimited(structlog.get_logger()))
        await registration.prepare(says(lossy))
        return registration, client

    def owner(self) -> int:
        stat = self.zookeeper.tree.exists(PATH)
        return 0 if stat is None else stat.ephemeral_owner

    def czxid(self) -> int:
        stat = self.zookeeper.tree.exists(PATH)
        assert stat is not None
        return stat.czxid

    async def put_state(self, topic: str, isr: list[int], leader: int, epoch: int = 3) -> None:
        client = self.zookeeper.client()
        await client.start()
        state = PartitionStateZnode(controller_epoch=1, leader=leader, leader_epoch=epoch, isr=isr)
        await client.create(PartitionStateZnode.path(topic, 0), state.encode(), parents=True)

    def state(self, topic: str) -> tuple[list[int], int, int]:
        """(ISR, leader, leader epoch)"""
        path = PartitionStateZnode.path(topic, 0)
        state = PartitionStateZnode.decode(path, self.zookeeper.tree.get(path).data)
        return list(state.isr), state.leader, state.leader_epoch


@pytest.fixture
async def here(autojump_clock, nursery) -> AsyncIterator[Site]:
    zookeeper = MemoryZooKeeper(latency_s=0.01)
    yield Site(zookeeper)


# --- a start ---------------------------------------------------------------------------------------------------


async def test_every_start_is_a_new_incarnation(here: Site, autojump_clock: MockClock) -> None:
    incarnations = [(await here.start())[0].incarnation for _ in range(3)]
    assert incarnations == [1, 2, 3]
    assert here.zookeeper.tree.get(BrokerIncarnationZnode.path(1)).stat.version == 3


async def test_an_incarnation_whose_answer_was_lost_is_never_used_twice(here: Site, autojump_clock: MockClock) -> None:
    await here.start()
    here.zookeeper.drop_next_reply(BrokerIncarnationZnode.path(1))
    registration, _ = await here.start()
    assert registration.incarnation == here.zookeeper.tree.get(BrokerIncarnationZnode.path(1)).stat.version > 1


async def test_the_broker_epoch_is_the_transaction_that_created_the_registration(
    here: Site, autojump_clock: MockClock
) -> None:
    registration, client = await here.start()
    assert registration.broker_epoch == -1
    told: list[int] = []
    registration.on_registered = told.append
    await registration.register(znode())
    assert (registration.broker_epoch, here.owner()) == (here.czxid(), client.session_id)
    assert told == [here.czxid()]


async def test_a_registration_whose_answer_was_lost_is_found_to_be_ours(here: Site, autojump_clock: MockClock) -> None:
    registration, client = await here.start()
    here.zookeeper.drop_next_reply(PATH)
    await registration.register(znode())
    assert (registration.broker_epoch, here.owner()) == (here.czxid(), client.session_id)


# --- somebody is there -----------------------------------------------------------------------------------------


async def test_the_registration_of_a_past_life_is_replaced_at_once(here: Site, autojump_clock: MockClock) -> None:
    registration, client = await here.start()
    await registration.register(znode())
    here.zookeeper.crash(client)
    before = trio.current_time()
    again, new_client = await here.start()
    await again.register(znode(port=9999))
    assert here.owner() == new_client.session_id
    assert trio.current_time() - before < 6, "without waiting for the old session"
    assert again.broker_epoch > registration.broker_epoch
    await trio.sleep(20)
    assert here.owner() == new_client.session_id, "the end of the old session takes nothing away"


async def test_a_broker_whose_disk_was_replaced_waits_for_the_end_of_its_past_session(
    here: Site, autojump_clock: MockClock
) -> None:
    """Its new folder has another id, as another broker's would."""
    registration, client = await here.start()
    await registration.register(znode())
    here.zookeeper.crash(client)
    again, new_client = await here.start(folder=OTHER_FOLDER)
    await again.register(znode(OTHER_FOLDER))
    assert here.owner() == new_client.session_id
    assert again.incarnation == registration.incarnation + 1


async def test_it_is_told_once_who_is_waited_for_and_no_longer_than_a_session_may_last(
    here: Site, autojump_clock: MockClock
) -> None:
    other, _ = await here.start(folder=OTHER_FOLDER)
    await other.register(znode(OTHER_FOLDER, port=7777))
    client = here.zookeeper.client(session_timeout_ms=6000)
    await client.start()
    capture = LogCapture()
    registration = Registration(1, MY_FOLDER, client, structlog.wrap_logger(None, processors=[capture]))
    with (
        trio.fail_after(SESSIONS_AWAITED * 6 + 1),
        pytest.raises(BrokerIdTaken, match="host:7777, and has been for 9 s"),
    ):
        await registration.prepare(says(True))
    [line] = capture.entries
    assert (line["registered_at"], line["at_most_s"]) == ("host:7777", 9)


async def test_another_broker_with_that_id_is_not_replaced(here: Site, autojump_clock: MockClock) -> None:
    registration, _ = await here.start()
    other, other_client = await here.start(folder=OTHER_FOLDER)
    await other.register(znode(OTHER_FOLDER, port=7777))  # between the other's first look and its registration
    with pytest.raises(BrokerIdTaken, match=r"broker\.id=1 .* host:7777"):
        await registration.register(znode())
    assert here.owner() == other_client.session_id
    assert registration.broker_epoch == -1


async def test_an_unreadable_registration_counts_as_another_brokers(here: Site, autojump_clock: MockClock) -> None:
    registration, _ = await here.start()
    other = here.zookeeper.client()
    await other.start()
    await other.create(PATH, b"junk", ephemeral=True)
    with pytest.raises(BrokerIdTaken, match="unreadable"):
        await registration.register(znode())


# --- sessions end ----------------------------------------------------------------------------------------------


async def test_after_its_session_expired_the_broker_registers_again_with_a_new_epoch(
    here: Site, nursery, autojump_clock: MockClock
) -> None:
    registration, client = await here.start()
    await registration.register(znode())
    first = registration.broker_epoch
    nursery.start_soon(registration.run)
    here.zookeeper.expire(client.session_id)
    await trio.sleep(0.03)
    assert registration.broker_epoch in (first, -1)
    await trio.sleep(2)
    assert (registration.broker_epoch, here.owner()) == (here.czxid(), client.session_id)
    assert registration.broker_epoch > first
    assert registration.incarnation == 1, "the broker has not been started anew"


async def test_between_the_sessions_the_broker_has_no_epoch(here: Site, autojump_clock: MockClock) -> None:
    registration, client = await here.start()
    await registration.register(znode())
    here.zookeeper.expire(client.session_id)
    await trio.sleep(2)  # `run` does not run
    assert registration.broker_epoch == -1


@pytest.mark.parametrize("moment_s", [0.03, 0.06, 0.07, 0.08, 0.1, 0.2])
async def test_a_session_that_expires_again_while_registering_ends_registered_once(
    moment_s: float, here: Site, nursery, autojump_clock: MockClock
) -> None:
    registration, client = await here.start()
    await registration.register(znode())
    nursery.start_soon(registration.run)
    here.zookeeper.expire(client.session_id)
    await trio.sleep(moment_s)
    if client.session_id in here.zookeeper.sessions:
        here.zookeeper.expire(client.session_id)
    await trio.sleep(5)
    assert (registration.broker_epoch, here.owner()) == (here.czxid(), client.session_id)


async def test_a_second_expiry_with_a_lost_answer_ends_registered_once(
    here: Site, nursery, autojump_clock: MockClock
) -> None:
    registration, client = await here.start()
    await registration.register(znode())
    nursery.start_soon(registration.run)
    here.zookeeper.drop_next_reply(PATH)
    here.zookeeper.expire(client.session_id)
    await trio.sleep(0.2)
    if client.session_id in here.zookeeper.sessions:
        here.zookeeper.expire(client.session_id)
    await trio.sleep(10)
    assert (registration.broker_epoch, here.owner()) == (here.czxid(), client.session_id)


async def test_a_short_loss_of_the_connection_changes_nothing(here: Site, nursery, autojump_clock: MockClock) -> None:
    registration, client = await here.start()
    await registration.register(znode())
    epoch = registration.broker_epoch
    nursery.start_soon(registration.run)
    here.zookeeper.cut(client)
    await trio.sleep(1)
    here.zookeeper.heal(client)
    await trio.sleep(2)
    assert (registration.broker_epoch, here.owner()) == (epoch, client.session_id)


# --- a start that may have lost data ---------------------------------------------------------------------------


async def test_a_broker_that_may_have_lost_data_leaves_every_isr_with_another_member(
    here: Site, autojump_clock: MockClock
) -> None:
    await here.put_state("leads", [1, 2], leader=1, epoch=3)
    await here.put_state("follows", [1, 2, 3], leader=2, epoch=3)
    await here.put_state("alone", [1], leader=1, epoch=3)
    await here.put_state("outside", [2, 3], leader=2, epoch=3)
    await here.start(lossy=True)
    assert here.state("leads") == ([2], -1, 4)
    assert here.state("follows") == ([2, 3], 2, 4)
    assert here.state("alone") == ([1], -1, 4)
    assert here.state("outside") == ([2, 3], 2, 3)


async def test_a_broker_that_lost_nothing_stays_in_its_isrs(here: Site, autojump_clock: MockClock) -> None:
    await here.put_state("t", [1, 2], leader=1)
    await here.start(lossy=False)
    assert here.state("t") == ([1, 2], 1, 3)


async def test_leaving_is_conditional_and_looks_again_when_somebody_else_wrote(
    here: Site, autojump_clock: MockClock
) -> None:
    await here.put_state("t", [1, 2, 3], leader=2)
    path = PartitionStateZnode.path("t", 0)
    rival = here.zookeeper.client()
    await rival.start()
    client = here.zookeeper.client()
    await client.start()
    registration = Registration(1, MY_FOLDER, client, structlog.get_logger())
    inner, writes = client.multi_many, []

    async def beaten(transactions):
        writes.append(transactions)
        if len(writes) == 1:
            changed = PartitionStateZnode(controller_epoch=1, leader=2, leader_epoch=4, isr=[1, 2])
            await rival.set(path, changed.encode(), 0)
        return await inner(transactions)

    client.multi_many = beaten
    await registration.prepare(says(True))
    assert here.state("t") == ([2], 2, 5)
    assert len(writes) == 2


@pytest.mark.parametrize("had_an_id", [True, False])
async def test_leaving_spares_a_topic_that_was_made_anew_since_its_name_was_read(
    had_an_id: bool, here: Site, autojump_clock: MockClock
) -> None:
    """The version is that of the old one; one without an id's znode was made by another tool, and is left as well."""
    await here.put_state("t", [1, 2], leader=2)
    path = PartitionStateZnode.path("t", 0)
    client = here.zookeeper.client()
    await client.start()
    if had_an_id:
        await client.create(TopicIdZnode.path("t", b"a" * 16))
    registration = Registration(1, MY_FOLDER, client, structlog.get_logger())
    inner, writes = client.multi_many, []

    async def beaten(transactions):
        writes.append(transactions)
        if len(writes) == 1 and had_an_id:
            other = PartitionStateZnode(controller_epoch=1, leader=3, leader_epoch=0, isr=[3]).encode()
            ids = [Delete(TopicIdZnode.path("t", b"a" * 16)), Create(TopicIdZnode.path("t", b"b" * 16))]
            await client.multi([*ids, Delete(path), Create(path, other)])
        return await inner(transactions)

    client.multi_many = beaten
    await registration.prepare(says(True))
    assert here.state("t") == (([3], 3, 0) if had_an_id else ([2], 2, 4))


async def test_a_damaged_state_does_not_keep_a_broker_from_starting(here: Site, autojump_clock: MockClock) -> None:
    await here.put_state("good", [1, 2], leader=2)
    await here.put_state("bad", [1, 2], leader=2)
    client = here.zookeeper.client()
    await client.start()
    await client.set(PartitionStateZnode.path("bad", 0), b"junk", 0)
    await here.start(lossy=True)
    assert here.state("good") == ([2], 2, 4)


@pytest.mark.parametrize(
    ("epoch", "ours", "was_ours"),
    [(None, None, True), (b"7", b"7", True), (b"8", b"7", False), (b"8", None, False)],
    ids=["no controller yet", "ours", "a Kafka's since", "a Kafka's only"],
)
async def test_the_disk_is_told_whose_the_last_controller_was(
    epoch: bytes | None, ours: bytes | None, was_ours: bool, here: Site, autojump_clock: MockClock
) -> None:
    """A folder that stopped in order in a Kafka's term stopped in its last life; in ours it may be a backup."""
    client = here.zookeeper.client()
    await client.start()
    for path, data in ((CONTROLLER_EPOCH_PATH, epoch), (OUR_CONTROLLER_EPOCH_PATH, ours)):
        if data is not None:
            await client.create(path, data, parents=True)
    told: list[bool] = []

    async def begin_life(_: int, was_ours: bool) -> bool:
        await trio.lowlevel.checkpoint()
        told.append(was_ours)
        return False

    await Registration(1, MY_FOLDER, client, structlog.get_logger()).prepare(begin_life)
    assert told == [was_ours]


# --- what it says changes ----------------------------------------------------------------------------------------


def port(here: Site) -> int:
    return BrokerIdZnode.decode(PATH, here.zookeeper.tree.get(PATH).data).port


async def test_other_addresses_are_written_over_and_make_no_new_epoch(
    here: Site, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    registration, _ = await here.start()
    told: list[int] = []
    registration.on_registered = told.append
    assert not registration.is_announced
    await registration.register(znode())
    nursery.start_soon(registration.run)
    here.zookeeper.drop_next_reply(PATH)
    registration.change(znode(port=9093))
    await trio.sleep(5)
    assert (port(here), told) == (9093, [here.czxid()])
    assert registration.broker_epoch == here.czxid()


async def test_what_changes_while_a_session_is_lost_is_said_in_the_next(
    here: Site, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    registration, client = await here.start()
    await registration.register(znode())
    nursery.start_soon(registration.run)
    here.zookeeper.cut(client)
    registration.change(znode(port=9093))
    await trio.sleep(1)
    here.zookeeper.expire(client.session_id)
    here.zookeeper.heal(client)
    await trio.sleep(10)
    assert (port(here), here.owner()) == (9093, client.session_id)
    assert registration.broker_epoch == here.czxid()
