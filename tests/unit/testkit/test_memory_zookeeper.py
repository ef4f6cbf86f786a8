"""The faults of the in-memory ZooKeeper, and what only virtual time can show."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from strandline.runtime.coordination import (
    BadVersion,
    Check,
    ConnectionLost,
    CoordinationError,
    Create,
    Delete,
    NoNode,
    Operation,
    SessionExpired,
    SessionState,
    SetData,
    TransactionFailed,
    WatchEvent,
)
from strandline.testkit.zookeeper.client import MemoryCoordination, Request
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from strandline.testkit.zookeeper.tree import ZnodeTree
from support.coordination_sites import Events, States

SUSPENDED, EXPIRED, CONNECTED = SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED


async def started(server: MemoryZooKeeper, session_timeout_ms: int = 6000) -> tuple[MemoryCoordination, States]:
    client = server.client(session_timeout_ms=session_timeout_ms)
    await client.start()
    return client, States(client)


@pytest.fixture
async def server() -> MemoryZooKeeper:
    server = MemoryZooKeeper(latency_s=0.002)
    return server


@pytest.mark.parametrize("at_the_end", [False, True])
async def test_a_connection_can_be_broken_before_and_after_any_write(
    at_the_end: bool, autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    client, states = await started(server)
    seen: list[tuple[str, tuple[str, ...], bool]] = []

    def on_write(who: MemoryCoordination, request: Request, is_done: bool) -> bool:
        assert who is client
        seen.append((request.path, request.paths, is_done))
        return is_done is not at_the_end

    server.on_write = on_write
    with pytest.raises(ConnectionLost):
        await client.multi([Create("/a"), Create("/b")])
    await client.exists("/a")  # a read is none
    assert seen == [("/a", ("/a", "/b"), is_done) for is_done in (False, True)[: 1 + at_the_end]]
    assert (server.tree.exists("/b") is not None) == at_the_end
    assert states.seen == [SUSPENDED, CONNECTED]


async def test_a_lost_reply_leaves_a_write_applied_that_its_client_cannot_know(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    client, states = await started(server)
    await client.create("/state", b"0")
    server.drop_next_reply("/state")
    with pytest.raises(ConnectionLost, match="/state"):
        await client.set("/state", b"1", 0)
    assert server.tree.get("/state").data == b"1"
    with pytest.raises(BadVersion):  # the identical conditional write tells that something was applied
        await client.set("/state", b"1", 0)
    assert states.seen == [SUSPENDED, CONNECTED]


async def test_a_lost_request_leaves_nothing_and_the_identical_write_succeeds(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    client, _ = await started(server)
    await client.create("/state", b"0")
    server.drop_next_request("/state")
    assert (await client.get("/state")).data == b"0"  # reads are not meant
    with pytest.raises(ConnectionLost):
        await client.multi([SetData("/state", b"1", 0)])
    assert (await client.set("/state", b"1", 0)).version == 1


async def test_a_lost_reply_to_a_transaction_is_chosen_by_any_of_its_paths(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    client, _ = await started(server)
    await client.multi([Create("/id"), Create("/state", b"0")])
    server.drop_next_reply("/state")
    with pytest.raises(ConnectionLost):
        await client.multi([Check("/id", 0), SetData("/state", b"1", 0)])
    assert server.tree.get("/state").data == b"1"


async def test_all_that_is_in_flight_fails_when_the_connection_breaks(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    client, _ = await started(server)
    await client.create("/n")
    server.drop_next_reply("/n/2")
    results = await client.multi_many([[Create(f"/n/{index}")] for index in range(5)])
    assert results[:2] == [["/n/0"], ["/n/1"]]
    assert [type(result) for result in results[2:]] == [ConnectionLost] * 3
    assert server.tree.children("/n") == ["0", "1", "2"]


async def test_a_client_that_is_cut_off_stays_suspended_and_learns_of_the_expiry_only_when_healed(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    client, states = await started(server)
    old = client.session_id
    await client.create("/e", ephemeral=True)
    server.cut(client)
    await states.until(SUSPENDED)
    await trio.sleep(5.9)
    assert server.tree.exists("/e") is not None
    await trio.sleep(100)
    assert server.tree.exists("/e") is None and old not in server.sessions
    assert (client.state, client.session_id, states.seen) == (SUSPENDED, old, [SUSPENDED])
    assert client.seconds_since_contact() > 100
    server.heal(client)
    await states.until(SUSPENDED, EXPIRED, CONNECTED)
    assert client.session_id != old
    assert client.seconds_since_contact() == 0


async def test_a_cut_shorter_than_the_session_keeps_it(autojump_clock: trio.abc.Clock, server: MemoryZooKeeper) -> None:
    client, states = await started(server)
    await client.create("/e", ephemeral=True)
    for _ in range(3):
        server.cut(client)
        await trio.sleep(5)
        server.heal(client)
        await trio.sleep(5)
    assert states.seen == [SUSPENDED, CONNECTED] * 3
    assert server.tree.exists("/e") is not None


async def test_a_silent_cut_is_noticed_late_and_what_was_sent_meanwhile_is_lost(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    client, states = await started(server)
    server.cut(client, noticed=False)
    cut_at = trio.current_time()
    with pytest.raises(ConnectionLost):
        await client.create("/lost")
    assert trio.current_time() - cut_at == pytest.approx(4.0)
    assert states.seen == [SUSPENDED]
    assert client.seconds_since_contact() == pytest.approx(4.0)
    server.heal(client)
    await states.until(SUSPENDED, CONNECTED)
    assert await client.exists("/lost") is None


async def test_a_silent_cut_that_heals_in_time_loses_nothing_and_keeps_the_order(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper, nursery: trio.Nursery
) -> None:
    client, states = await started(server)
    await client.create("/q")
    server.cut(client, noticed=False)
    for index in range(5):
        nursery.start_soon(client.create, f"/q/{index}-")
        await trio.sleep(0.1)
    server.heal(client)
    await client.create("/q/last")
    await trio.sleep(10)
    assert states.seen == []
    order = sorted(server.tree.children("/q"), key=lambda name: server.tree.node(f"/q/{name}").czxid)
    assert order == [f"{index}-" for index in range(5)] + ["last"]


async def test_a_held_client_notices_nothing_until_it_is_released_and_is_expired_by_then(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper, nursery: trio.Nursery
) -> None:
    client, states = await started(server)
    await client.create("/controller", ephemeral=True)
    server.hold(client)
    outcome: list[CoordinationError] = []

    async def write() -> None:
        try:
            await client.create("/late")
        except CoordinationError as error:
            outcome.append(error)

    nursery.start_soon(write)
    await trio.sleep(20)
    assert (client.state, states.seen, outcome) == (CONNECTED, [], [])
    assert server.tree.exists("/controller") is None
    assert client.seconds_since_contact() == pytest.approx(20)
    server.heal(client)
    await states.until(SUSPENDED, EXPIRED, CONNECTED)
    assert isinstance(outcome[0], ConnectionLost)
    assert server.tree.exists("/late") is None


async def test_what_the_old_session_asked_is_not_carried_out_in_the_new_one(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper, nursery: trio.Nursery
) -> None:
    client, states = await started(server)
    server.cut(client)
    await states.until(SUSPENDED)
    outcome: list[CoordinationError] = []

    async def write() -> None:
        try:
            await client.create("/from-the-old-session")
        except CoordinationError as error:
            outcome.append(error)

    nursery.start_soon(write)
    await trio.sleep(10)
    server.heal(client)
    await states.until(SUSPENDED, EXPIRED, CONNECTED)
    await client.sync()
    assert [type(error) for error in outcome] == [SessionExpired]
    assert server.tree.children("/") == []


async def test_no_session_expires_while_the_server_is_down_and_each_has_its_whole_timeout_afterwards(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    alive, states = await started(server)
    dead, _ = await started(server)
    await alive.create("/alive", ephemeral=True)
    await dead.create("/dead", ephemeral=True)
    server.crash(dead)
    await trio.sleep(3)
    server.stop()
    await trio.sleep(60)
    server.start()
    await trio.sleep(5)
    assert server.tree.children("/") == ["alive", "dead"]
    await trio.sleep(2)
    assert server.tree.children("/") == ["alive"]
    assert states.seen == [SUSPENDED, CONNECTED]


async def test_a_crashed_client_is_never_heard_of_again(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper, nursery: trio.Nursery
) -> None:
    client, states = await started(server)
    await client.create("/a")
    watch = Events()
    await client.get("/a", watch)
    nursery.start_soon(client.create, "/in-flight")
    await trio.testing.wait_all_tasks_blocked()
    server.crash(client)
    other, _ = await started(server)
    await other.set("/a", b"", 0)
    await trio.sleep(60)
    assert (watch.seen, states.seen) == ([], [])
    assert server.tree.children("/") == ["a"]
    nursery.cancel_scope.cancel()


async def test_a_lagging_server_shows_old_znodes_until_the_client_syncs_or_writes(
    autojump_clock: trio.abc.Clock, server: MemoryZooKeeper
) -> None:
    reader, _ = await started(server)
    writer, _ = await started(server)
    await writer.create("/a", b"0")
    before, after, names = Events(), Events(), Events()
    await reader.get("/a", before)
    server.lag(reader)
    await writer.set("/a", b"1", 0)
    await writer.create("/a/child")
    assert (await reader.get("/a", after)).data == b"0"
    assert await reader.children("/a", names) == []
    assert await reader.get_many(["/a/child"]) == [None]
    await trio.sleep(1)
    assert (before.seen, after.seen, names.seen) == ([], [], [])
    await reader.sync()
    assert before.seen == after.seen == [WatchEvent.CHANGED]
    assert names.seen == [WatchEvent.CHILDREN]
    assert (await reader.get("/a")).data == b"1"
    server.lag(reader)
    await writer.set("/a", b"2", 1)
    with pytest.raises(BadVersion):
        await reader.set("/a", b"x", 1)
    assert (await reader.get("/a")).data == b"2"


async def test_whatever_the_latencies_the_requests_of_a_session_are_handled_in_order(
    autojump_clock: trio.abc.Clock,
) -> None:
    draw = random.Random(3)
    server = MemoryZooKeeper(latency_s=draw.random)
    client, _ = await started(server)
    await client.create("/n", b"")
    results = await client.multi_many([[SetData("/n", b"%d" % version, version)] for version in range(50)])
    assert all(isinstance(result, list) for result in results)
    assert server.tree.get("/n").data == b"49"


async def test_an_idle_session_lives_for_ever(autojump_clock: trio.abc.Clock, server: MemoryZooKeeper) -> None:
    client, states = await started(server)
    await client.create("/e", ephemeral=True)
    await trio.sleep(1_000_000)
    assert states.seen == [] and await client.exists("/e") is not None


def test_the_same_calls_give_the_same_history() -> None:
    async def history() -> list[object]:
        seen: list[object] = []
        draw = random.Random(5)
        server = MemoryZooKeeper(latency_s=lambda: draw.random() / 100)
        clients = [(await started(server))[0] for _ in range(3)]
        for number, client in enumerate(clients):
            client.add_session_listener(lambda state, number=number: seen.append((number, state)))

        async def work(client: MemoryCoordination, number: int) -> None:
            for _ in range(20):
                try:
                    await client.create("/q-", ephemeral=True, sequence=True)
                    await client.children("/", lambda event: seen.append((number, event, trio.current_time())))
                except CoordinationError as error:
                    seen.append((number, str(error)))

        async with trio.open_nursery() as nursery:
            for number, client in enumerate(clients):
                nursery.start_soon(work, client, number)
                await trio.sleep(0.001)
            await trio.sleep(0.05)
            server.cut(clients[0])
            server.expire(clients[1].session_id)
            await trio.sleep(1)
            server.heal(clients[0])
        seen.append((server.tree.zxid, server.tree.children("/")))
        return seen

    first, second = (trio.run(history, clock=trio.testing.MockClock(autojump_threshold=0)) for _ in range(2))
    assert first == second and len(first) > 20


PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/p"])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=2), st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, st.binary(max_size=2), st.integers(-1, 2)),
    st.builds(Delete, PATHS, st.integers(-1, 2)),
    st.builds(Check, PATHS, st.integers(-1, 2)),
)


@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=25))
def test_a_failed_transaction_leaves_no_trace_and_every_tree_is_whole(history: list[list[Operation]]) -> None:
    tree = ZnodeTree()
    for operations in history:
        before = tree.snapshot()
        try:
            applied = tree.apply(operations, session_id=9)
        except TransactionFailed:
            assert tree.nodes == before.nodes
        else:
            assert len(applied.results) == len(operations)
        for path, node in tree.nodes.items():
            for name in node.children:
                assert (path.rstrip("/") + "/" + name) in tree.nodes
            assert not (node.ephemeral_owner and node.children)
        assert sum(len(node.children) for node in tree.nodes.values()) == len(tree.nodes) - 1


def test_a_tree_reads_nothing_where_there_is_nothing() -> None:
    tree = ZnodeTree()
    assert tree.exists("/no") is None
    with pytest.raises(NoNode, match="/no"):
        tree.get("/no")
