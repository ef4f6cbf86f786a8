"""What every implementation of the coordination seam does: the in-memory ZooKeeper and the real one.

On the in-memory one trio's clock is virtual, on the real one it is not: no test sleeps, all wait for what they expect.
"""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

import pytest
import trio
import trio.testing

from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.runtime.coordination import (
    BadVersion,
    Check,
    ConnectionLost,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    RequestTooLarge,
    SessionState,
    SetData,
    TransactionFailed,
    WatchEvent,
    ZnodeStat,
)
from strandline.runtime.coordination_kazoo import KazooCoordination
from strandline.testkit.zookeeper import MemoryZooKeeper
from strandline.testkit.zookeeper_client import MemoryCoordination

SESSION_TIMEOUT_MS = 4000
PATIENCE_S = 60
"""For what must come: only a hanging test waits that long."""


class Site(Protocol):
    """A server and how to hurt it."""

    async def client(self, chroot: str | None = None) -> Coordination: ...

    def unstarted_client(self) -> Coordination: ...

    async def expire(self, client: Coordination) -> None: ...

    async def crash(self, client: Coordination) -> None: ...

    async def stop(self) -> None: ...

    async def start(self) -> None: ...


class MemorySite:
    def __init__(self, server: MemoryZooKeeper) -> None:
        self.server = server

    def unstarted_client(self, chroot: str | None = None) -> MemoryCoordination:
        return self.server.client(
            chroot="/test" if chroot is None else chroot,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            connection_timeout_ms=1000,
        )

    async def client(self, chroot: str | None = None) -> Coordination:
        client = self.unstarted_client(chroot)
        await client.start()
        return client

    async def expire(self, client: Coordination) -> None:
        self.server.expire(client.session_id)

    async def crash(self, client: Coordination) -> None:
        assert isinstance(client, MemoryCoordination)
        self.server.crash(client)

    async def stop(self) -> None:
        self.server.stop()

    async def start(self) -> None:
        self.server.start()


class RealSite:
    def __init__(self, server: EmbeddedZooKeeper, chroot: str) -> None:
        self.server = server
        self._chroot = chroot
        self._clients: list[KazooCoordination] = []

    def unstarted_client(self, chroot: str | None = None) -> KazooCoordination:
        client = KazooCoordination(
            self.server.address + (self._chroot if chroot is None else chroot),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            connection_timeout_ms=1000 if not self.server.process.is_alive else 30_000,
        )
        self._clients.append(client)
        return client

    async def client(self, chroot: str | None = None) -> Coordination:
        client = self.unstarted_client(chroot)
        await client.start()
        return client

    async def expire(self, client: Coordination) -> None:
        """Take the session over from another connection and end it there."""
        assert isinstance(client, KazooCoordination)
        host, port = self.server.address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        async with stream:
            connect = struct.pack("!iqiqi", 0, 0, SESSION_TIMEOUT_MS, client.session_id, 16)
            await self._exchange(stream, connect + client.session_password + b"\0")
            await self._exchange(stream, struct.pack("!ii", 1, -11))

    async def _exchange(self, stream: trio.SocketStream, request: bytes) -> None:
        await stream.send_all(struct.pack("!i", len(request)) + request)
        reply = bytearray()
        while len(reply) < 4 or len(reply) < 4 + struct.unpack_from("!i", reply)[0]:
            received = await stream.receive_some()
            assert received, "the server closed the connection"
            reply += received

    async def crash(self, client: Coordination) -> None:
        """End its thread without ending the session."""
        assert isinstance(client, KazooCoordination)
        client._client._stopped.set()
        client._connection.break_socket()
        await client._stopped.wait()

    async def stop(self) -> None:
        await trio.to_thread.run_sync(self.server.stop)

    async def start(self) -> None:
        await trio.to_thread.run_sync(self.server.start)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        if not self.server.process.is_alive:
            await self.start()


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(Path(tmp_path_factory.mktemp("zookeeper"))) as server:
        yield server


@pytest.fixture(params=["memory", "zookeeper"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def site_clock(kind: str) -> trio.abc.Clock | None:
    return trio.testing.MockClock(autojump_threshold=0) if kind == "memory" else None


@pytest.fixture
async def site(kind: str, request: pytest.FixtureRequest, nursery: trio.Nursery) -> AsyncIterator[Site]:
    if kind == "memory":
        server = MemoryZooKeeper(latency_s=0.002)
        await nursery.start(server.run)
        yield MemorySite(server)
        return
    real = RealSite(request.getfixturevalue("real_server"), f"/{request.node.originalname}")
    yield real
    await real.close()


class States:
    """The states that a client reports, in order."""

    def __init__(self, client: Coordination) -> None:
        self.seen: list[SessionState] = []
        self._changed = trio.Event()
        client.add_session_listener(self._add)

    def _add(self, state: SessionState) -> None:
        self.seen.append(state)
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, *states: SessionState) -> None:
        with trio.fail_after(PATIENCE_S):
            while self.seen != list(states):
                assert len(self.seen) <= len(states), self.seen
                await self._changed.wait()


class Events:
    """What a watch reports."""

    def __init__(self) -> None:
        self.seen: list[WatchEvent] = []
        self._changed = trio.Event()

    def __call__(self, event: WatchEvent) -> None:
        self.seen.append(event)
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, *events: WatchEvent) -> None:
        with trio.fail_after(PATIENCE_S):
            while self.seen != list(events):
                assert len(self.seen) < len(events), self.seen
                await self._changed.wait()


async def test_a_started_client_is_connected_and_its_chroot_exists(site: Site) -> None:
    below = await site.client(chroot="/deep/er")
    above = await site.client(chroot="")
    assert below.state is SessionState.CONNECTED
    assert below.session_id not in (0, above.session_id)
    await below.create("/a", b"1")
    assert (await above.get("/deep/er/a")).data == b"1"
    assert await below.children("/") == ["a"]


async def test_start_names_the_server_when_none_answers(site: Site) -> None:
    await site.stop()
    client = site.unstarted_client()
    with pytest.raises(CoordinationError, match="answer"):
        await client.start()
    assert client.state is SessionState.SUSPENDED
    await client.close()


async def test_data_has_versions_and_a_write_names_the_one_it_replaces(site: Site) -> None:
    client = await site.client()
    assert await client.create("/a", b"0") == "/a"
    created = await client.get("/a")
    assert created.data == b"0" and created.stat.version == 0
    changed = await client.set("/a", b"1", 0)
    assert changed.version == 1
    assert changed.czxid == created.stat.czxid < changed.mzxid
    with pytest.raises(BadVersion, match="/a"):
        await client.set("/a", b"2", 0)
    with pytest.raises(BadVersion):
        await client.delete("/a", 0)
    assert (await client.get("/a")).data == b"1"
    await client.delete("/a", 1)
    assert await client.exists("/a") is None


async def test_what_is_missing_there_already_or_not_empty_has_its_error(site: Site) -> None:
    client = await site.client()
    for call in (client.get("/no"), client.children("/no"), client.set("/no", b"", -1), client.delete("/no")):
        with pytest.raises(NoNode, match="/no"):
            await call
    with pytest.raises(NoNode):
        await client.create("/no/child")
    await client.create("/a/b/c", b"deep", parents=True)
    with pytest.raises(NodeExists):
        await client.create("/a/b/c", parents=True)
    with pytest.raises(NotEmpty):
        await client.delete("/a")
    assert (await client.get("/a/b")).data == b""
    for path in ("a", "/a/", "/a//b", "/a/../b", ""):
        with pytest.raises(CoordinationError, match="path"):
            await client.get(path)


async def test_the_stat_counts_children_and_their_changes(site: Site) -> None:
    client = await site.client()
    await client.create("/a")
    for name in ("x", "y", "z"):
        await client.create(f"/a/{name}")
    await client.delete("/a/y")
    stat = await client.exists("/a")
    assert stat is not None
    assert (stat.num_children, stat.cversion, stat.version, stat.ephemeral_owner) == (2, 4, 0, 0)
    assert await client.children("/a") == ["x", "z"]


async def test_sequence_nodes_count_every_child_ever_created(site: Site) -> None:
    client = await site.client()
    await client.create("/q")
    assert await client.create("/q/n-", sequence=True) == "/q/n-0000000000"
    await client.create("/q/other")
    await client.delete("/q/other")
    assert await client.create("/q/n-", b"x", sequence=True, ephemeral=True) == "/q/n-0000000002"
    assert await client.multi([Create("/q/n-", sequence=True), Create("/q/m-", sequence=True)]) == [
        "/q/n-0000000003",
        "/q/m-0000000004",
    ]


async def test_an_ephemeral_znode_is_owned_by_its_session_and_ends_with_it(site: Site) -> None:
    owner, other = await site.client(), await site.client()
    await owner.create("/e", b"me", ephemeral=True)
    stat = await other.exists("/e")
    assert stat is not None and stat.ephemeral_owner == owner.session_id
    with pytest.raises(CoordinationError, match="/e/child"):
        await owner.create("/e/child")
    gone = Events()
    await other.exists("/e", gone)
    await owner.close()
    await gone.until(WatchEvent.DELETED)
    assert await other.exists("/e") is None


async def test_the_ephemeral_of_the_own_old_session_can_be_replaced_at_once(site: Site) -> None:
    before = await site.client()
    await before.create("/ids", b"")
    await before.create("/ids/1", b"old", ephemeral=True)
    old_session = before.session_id
    await site.crash(before)
    after = await site.client()
    with pytest.raises(NodeExists):
        await after.create("/ids/1", b"new", ephemeral=True)
    found = await after.get("/ids/1")
    assert found.stat.ephemeral_owner == old_session != after.session_id
    await after.multi([Delete("/ids/1", found.stat.version), Create("/ids/1", b"new", ephemeral=True)])
    replaced = await after.get("/ids/1")
    assert (replaced.data, replaced.stat.ephemeral_owner) == (b"new", after.session_id)
    assert replaced.stat.czxid > found.stat.czxid


async def test_the_ephemerals_of_a_crashed_client_vanish_when_its_session_expires(site: Site) -> None:
    victim, witness = await site.client(), await site.client()
    await victim.create("/e", ephemeral=True)
    gone = Events()
    await witness.exists("/e", gone)
    await site.crash(victim)
    await gone.until(WatchEvent.DELETED)


async def test_a_transaction_is_all_or_nothing_and_names_what_failed(site: Site) -> None:
    client = await site.client()
    await client.create("/epoch", b"1")
    await client.create("/a", b"0")
    results = await client.multi(
        [Check("/epoch", 0), Create("/b", b"b"), SetData("/a", b"1", 0), SetData("/b", b"c", 0), Delete("/epoch", 0)]
    )
    assert results[:2] == [None, "/b"] and results[4] is None
    assert isinstance(results[2], ZnodeStat) and results[2].version == 1
    for operations, index, cause in (
        ([SetData("/a", b"2", 1), Check("/b", 7), Create("/c")], 1, BadVersion),
        ([Create("/c"), Delete("/no")], 1, NoNode),
        ([Create("/b"), Create("/c")], 0, NodeExists),
        ([Create("/a/x"), Delete("/a")], 1, NotEmpty),
    ):
        with pytest.raises(TransactionFailed) as failed:
            await client.multi(operations)
        assert (failed.value.index, type(failed.value.cause)) == (index, cause)
        assert operations[index].path in str(failed.value)
    assert (await client.get("/a")).data == b"1"
    assert await client.children("/") == ["a", "b"]
    assert await client.multi([]) == []


async def test_conflicting_transactions_in_flight_end_each_by_itself_in_order(site: Site) -> None:
    client = await site.client()
    await client.create("/n", b"")
    await client.create("/log", b"")
    transactions: list[list[Operation]] = [
        [SetData("/n", str(index).encode(), index // 2), Create(f"/log/{index}")] for index in range(200)
    ]
    transactions[7] = []
    transactions[9] = [Create("/big", bytes(2 << 20))]
    results = await client.multi_many(transactions)
    won = [index for index, result in enumerate(results) if isinstance(result, list) and result]
    # each version is offered twice; 4 and 5 name version 2, the empty one and the big one (8 has won) change nothing
    assert won == list(range(0, 200, 2))
    assert results[7] == [] and isinstance(results[9], RequestTooLarge)
    assert isinstance(results[1], TransactionFailed) and isinstance(results[1].cause, BadVersion)
    assert (await client.get("/n")).data == b"198"
    assert len(await client.children("/log")) == 100


async def test_a_thousand_znodes_are_read_in_the_order_asked_with_none_for_the_missing(site: Site) -> None:
    client = await site.client()
    await client.create("/n", b"")
    await client.multi_many(
        [[Create(f"/n/{start + i}", b"%d" % (start + i)) for i in range(100)] for start in range(0, 1000, 100)]
    )
    await client.create("/n/5/child", b"")
    paths = [f"/n/{index}" for index in reversed(range(1005))]
    znodes = await client.get_many(paths)
    assert [znode and znode.data for znode in znodes] == [None] * 5 + [b"%d" % i for i in reversed(range(1000))]
    assert znodes[-1] == await client.get("/n/0")
    children = await client.children_many(["/n/5", "/none", "/n/6", "/n"])
    assert children[:3] == [["child"], None, []]
    assert children[3] == sorted(str(index) for index in range(1000))
    assert await client.get_many([]) == [] and await client.children_many([]) == []


async def test_a_watch_fires_once_for_the_change_that_its_read_looks_at(site: Site) -> None:
    client, other = await site.client(), await site.client()
    data, missing, names, of_parent = Events(), Events(), Events(), Events()
    await client.create("/a", b"0")
    await client.get("/a", data)
    await client.exists("/a/new", missing)
    await client.children("/a", names)
    await client.children("/", of_parent)
    await other.set("/a", b"1", 0)
    await data.until(WatchEvent.CHANGED)
    await other.set("/a", b"2", 1)
    await other.create("/a/new")
    await missing.until(WatchEvent.CREATED)
    await names.until(WatchEvent.CHILDREN)
    await other.delete("/a/new")
    await other.delete("/a")
    await of_parent.until(WatchEvent.CHILDREN)
    await client.sync()
    assert (data.seen, missing.seen, names.seen) == (
        [WatchEvent.CHANGED],
        [WatchEvent.CREATED],
        [WatchEvent.CHILDREN],
    )


async def test_the_end_of_a_znode_fires_data_and_children_watches_and_a_failed_read_sets_none(site: Site) -> None:
    client = await site.client()
    data, names, never = Events(), Events(), Events()
    with pytest.raises(NoNode):
        await client.get("/a", never)
    with pytest.raises(NoNode):
        await client.children("/a", never)
    await client.create("/a")
    await client.get("/a", data)
    await client.get("/a", data)  # the same callback on the same path is one watch
    await client.children("/a", names)
    await client.delete("/a")
    await data.until(WatchEvent.DELETED)
    await names.until(WatchEvent.DELETED)
    await client.sync()
    assert never.seen == [] and data.seen == [WatchEvent.DELETED]


async def test_a_watch_event_comes_before_any_read_that_shows_the_change(site: Site) -> None:
    reader, writer = await site.client(), await site.client()
    await writer.create("/a", b"")
    for version in range(20):
        fired = Events()
        await reader.get("/a", fired)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.set, "/a", b"", version)
            with trio.fail_after(PATIENCE_S):
                while (await reader.exists("/a")).version == version:  # type: ignore[union-attr]
                    assert reader.state is SessionState.CONNECTED
            assert fired.seen == [WatchEvent.CHANGED]


async def test_a_transaction_fires_the_watches_of_all_it_changed(site: Site) -> None:
    client, other = await site.client(), await site.client()
    await other.create("/a")
    await other.create("/b")
    a, b, missing = Events(), Events(), Events()
    await client.get("/a", a)
    await client.get("/b", b)
    await client.exists("/c", missing)
    with pytest.raises(TransactionFailed):
        await other.multi([SetData("/a", b"", 0), Check("/b", 5)])
    await client.sync()
    assert a.seen == []
    await other.multi([SetData("/a", b"", 0), Delete("/b"), Create("/c")])
    await a.until(WatchEvent.CHANGED)
    await b.until(WatchEvent.DELETED)
    await missing.until(WatchEvent.CREATED)


async def test_a_session_survives_a_restart_of_the_server_and_watches_fire_once_with_connection(site: Site) -> None:
    client = await site.client()
    states = States(client)
    session_id = client.session_id
    await client.create("/e", b"mine", ephemeral=True)
    data, names = Events(), Events()
    await client.get("/e", data)
    await client.children("/", names)
    await site.stop()
    await states.until(SessionState.SUSPENDED)
    await data.until(WatchEvent.CONNECTION)
    await names.until(WatchEvent.CONNECTION)
    assert client.state is SessionState.SUSPENDED
    async with trio.open_nursery() as nursery:
        # what is asked while no server answers waits for the next connection
        nursery.start_soon(client.create, "/asked", b"meanwhile")
        await site.start()
        await states.until(SessionState.SUSPENDED, SessionState.CONNECTED)
    assert client.session_id == session_id
    stat = (await client.get("/e")).stat
    assert stat.ephemeral_owner == session_id
    assert (await client.get("/asked")).data == b"meanwhile"
    await client.set("/e", b"again", 0)
    await client.sync()
    assert data.seen == names.seen == [WatchEvent.CONNECTION]


async def test_an_expired_session_is_reported_and_followed_by_a_new_one(site: Site) -> None:
    client, witness = await site.client(), await site.client()
    states = States(client)
    old = client.session_id
    await client.create("/e", ephemeral=True)
    watch, gone = Events(), Events()
    await client.get("/e", watch)
    await witness.exists("/e", gone)
    await site.expire(client)
    await gone.until(WatchEvent.DELETED)
    await states.until(SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED)
    assert client.session_id not in (0, old)
    # the deletion may have been seen before the connection broke
    assert watch.seen in ([WatchEvent.CONNECTION], [WatchEvent.DELETED])
    await client.create("/e", ephemeral=True)
    assert (await client.get("/e")).stat.ephemeral_owner == client.session_id


async def test_a_listener_can_register_again_from_within_the_news_of_the_expiry(site: Site) -> None:
    client = await site.client()
    async with trio.open_nursery() as nursery:

        def register_again(state: SessionState) -> None:
            if state is SessionState.EXPIRED:
                nursery.start_soon(register)

        async def register() -> None:
            await client.create("/e", ephemeral=True)
            assert (await client.get("/e")).stat.ephemeral_owner == client.session_id
            registered.set()

        registered = trio.Event()
        client.add_session_listener(register_again)
        await site.expire(client)
        with trio.fail_after(PATIENCE_S):
            await registered.wait()


async def test_too_much_data_is_refused_and_harms_no_connection(site: Site) -> None:
    client = await site.client()
    states = States(client)
    await client.create("/a", bytes(1_000_000))
    with pytest.raises(RequestTooLarge, match="/b"):
        await client.create("/b", bytes(1 << 20))
    with pytest.raises(RequestTooLarge):
        await client.set("/a", bytes(1 << 20), 0)
    with pytest.raises(RequestTooLarge):
        await client.multi([Create(f"/c{index}", bytes(200_000)) for index in range(6)])
    assert (await client.get("/a")).data == bytes(1_000_000)
    assert states.seen == []


async def test_a_cancelled_operation_leaves_the_session_usable(site: Site) -> None:
    client = await site.client()
    await client.create("/a", b"1")
    with trio.CancelScope() as scope:
        scope.cancel()
        await client.get("/a")
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.get_many, ["/a"] * 1000)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert (await client.get("/a")).data == b"1"


async def test_close_ends_what_waits_and_is_idempotent_even_when_no_server_answers(site: Site) -> None:
    client = await site.client()
    states = States(client)
    await site.stop()
    await states.until(SessionState.SUSPENDED)
    outcome: list[BaseException] = []

    async def ask() -> None:
        try:
            await client.get("/")
        except ConnectionLost as error:
            outcome.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(PATIENCE_S):
            await client.close()
            await client.close()
    assert len(outcome) == 1
    with pytest.raises(ConnectionLost):
        await client.get("/")
    assert states.seen == [SessionState.SUSPENDED]


async def test_sync_makes_the_writes_of_others_visible(site: Site) -> None:
    reader, writer = await site.client(), await site.client()
    await writer.create("/a", b"0")
    await writer.set("/a", b"1", 0)
    await reader.sync("/a")
    assert (await reader.get("/a")).data == b"1"


async def test_two_clients_agree_on_one_winner(site: Site) -> None:
    clients = [await site.client() for _ in range(3)]
    outcomes: list[str] = []

    async def elect(client: Coordination) -> None:
        try:
            await client.create("/controller", b"", ephemeral=True)
            outcomes.append("won")
        except NodeExists:
            outcomes.append("lost")

    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(elect, client)
    assert sorted(outcomes) == ["lost", "lost", "won"]


def random_operation(draw: random.Random) -> Operation:
    path = draw.choice(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/p"])
    version = draw.choice([-1, 0, 0, 1, 2])
    match draw.randrange(6):
        case 0 | 1:
            return Create(path, b"c", ephemeral=draw.random() < 0.2, sequence=draw.random() < 0.15)
        case 2 | 3:
            return SetData(path, b"%d" % draw.randrange(100), version)
        case 4:
            return Delete(path, version)
        case _:
            return Check(path, version)


async def carry_out(client: Coordination, seed: int) -> list[object]:
    """What a seeded history of operations yields; zxids left out, they depend on what else happens on a server."""
    draw = random.Random(seed)
    history: list[object] = []

    def outline(result: object) -> object:
        if isinstance(result, ZnodeStat):
            return (result.version, result.cversion, result.ephemeral_owner == client.session_id, result.num_children)
        return result

    for _ in range(150):
        operations = [random_operation(draw) for _ in range(draw.choice([1, 1, 2, 3]))]
        fired: list[WatchEvent] = []
        path = operations[0].path
        await client.exists(path, fired.append)
        try:
            history.append([outline(result) for result in await client.multi(operations)])
        except TransactionFailed as failed:
            history.append((failed.index, type(failed.cause)))
        stat = await client.exists(path)
        names = await client.children("/")
        history.append((outline(stat), names, tuple(fired)))
    return history


@pytest.mark.parametrize("seed", range(4))
async def test_a_random_history_has_the_same_outcome_as_in_memory(site: Site, seed: int, nursery: trio.Nursery) -> None:
    reference_server = MemoryZooKeeper()
    await nursery.start(reference_server.run)
    reference = reference_server.client()
    await reference.start()
    client = await site.client(chroot=f"/random-{seed}")
    assert await carry_out(client, seed) == await carry_out(reference, seed)
