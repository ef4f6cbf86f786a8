"""Znodes, as every implementation of the coordination seam shows them: the in-memory ZooKeeper and the real one.

On the in-memory one trio's clock is virtual, on the real one it is not: no test sleeps, all wait for what they expect.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from strandline.runtime.coordination import (
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    RequestTooLarge,
    SessionState,
    SetData,
    TransactionFailed,
    WatchEvent,
    Znode,
    ZnodeStat,
)
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from support.coordination_sites import Site, States

SiteClock = trio.abc.Clock | None


async def test_a_started_client_is_connected_and_its_chroot_exists(site_clock: SiteClock, site: Site) -> None:
    below = await site.client(chroot="/deep/er")
    above = await site.client(chroot="")
    assert below.state is SessionState.CONNECTED
    assert below.session_id not in (0, above.session_id)
    await below.create("/a", b"1")
    assert (await above.get("/deep/er/a")).data == b"1"
    assert await below.children("/") == ["a"]


async def test_data_has_versions_and_a_write_names_the_one_it_replaces(site_clock: SiteClock, site: Site) -> None:
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


async def test_no_data_is_not_empty_data(site_clock: SiteClock, site: Site) -> None:
    """Kafka tells them apart, so what holds nothing must be what Kafka's holds."""
    client = await site.client()
    await client.create("/folder/null", parents=True)
    await client.create("/empty", b"")
    await client.multi([Create("/in-transaction", None), Create("/empty-in-transaction", b"")])
    paths = ["/folder", "/folder/null", "/empty", "/in-transaction", "/empty-in-transaction"]
    one_by_one = [await client.get(path) for path in paths]
    assert [znode.is_null for znode in one_by_one] == [True, True, False, True, False]
    assert {znode.data for znode in one_by_one} == {b""}
    assert await client.get_many(paths) == one_by_one
    await client.set("/empty", None, 0)
    await client.multi([SetData("/folder/null", b"", 0), SetData("/in-transaction", b"x", 0)])
    assert [(await client.get(path)).is_null for path in paths] == [True, False, True, False, False]


async def test_what_is_missing_there_already_or_not_empty_has_its_error(site_clock: SiteClock, site: Site) -> None:
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


async def test_the_stat_counts_children_and_their_changes(site_clock: SiteClock, site: Site) -> None:
    client = await site.client()
    await client.create("/a")
    for name in ("x", "y", "z"):
        await client.create(f"/a/{name}")
    await client.delete("/a/y")
    stat = await client.exists("/a")
    assert stat is not None
    assert (stat.num_children, stat.cversion, stat.version, stat.ephemeral_owner) == (2, 4, 0, 0)
    assert await client.children("/a") == ["x", "z"]


async def test_sequence_nodes_count_every_child_ever_created(site_clock: SiteClock, site: Site) -> None:
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


async def test_a_transaction_is_all_or_nothing_and_names_what_failed(site_clock: SiteClock, site: Site) -> None:
    client = await site.client()
    await client.create("/epoch", b"1")
    await client.create("/a", b"0")
    results = await client.multi(
        [Check("/epoch", 0), Create("/b", b"b"), SetData("/a", b"1", 0), SetData("/b", b"c", 0), Delete("/epoch", 0)]
    )
    assert results[:2] == [None, "/b"] and results[4] is None
    assert isinstance(results[2], ZnodeStat) and results[2].version == 1
    failing: list[tuple[list[Any], int, type[Exception]]] = [
        ([SetData("/a", b"2", 1), Check("/b", 7), Create("/c")], 1, BadVersion),
        ([Create("/c"), Delete("/no")], 1, NoNode),
        ([Create("/b"), Create("/c")], 0, NodeExists),
        ([Create("/a/x"), Delete("/a")], 1, NotEmpty),
    ]
    for operations, index, cause in failing:
        with pytest.raises(TransactionFailed) as failed:
            await client.multi(operations)
        assert (failed.value.index, type(failed.value.cause)) == (index, cause)
        assert operations[index].path in str(failed.value)
    assert (await client.get("/a")).data == b"1"
    assert await client.children("/") == ["a", "b"]
    assert await client.multi([]) == []


async def test_conflicting_transactions_in_flight_end_each_by_itself_in_order(
    site_clock: SiteClock, site: Site
) -> None:
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


async def test_a_thousand_znodes_are_read_in_the_order_asked_with_none_for_the_missing(
    site_clock: SiteClock, site: Site
) -> None:
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


async def test_what_may_not_be_read_is_refused_by_itself(site_clock: SiteClock, site: Site) -> None:
    client = await site.client()
    for path in ("/open", "/hidden", "/hidden/below"):
        await client.create(path, b"x")
    await site.make_unreadable(client, "/hidden")
    paths = ["/open", "/hidden", "/none", "/hidden/below"]
    opened, hidden, none, below = await client.get_each(paths)
    assert isinstance(opened, Znode) and isinstance(below, Znode) and none is None
    assert isinstance(hidden, NoAuth) and "/hidden" in str(hidden)
    opened_below, hidden_below, none_below, _ = await client.children_each(paths)
    assert opened_below == [] and isinstance(hidden_below, NoAuth) and none_below is None
    for read in (client.get_many, client.children_many):
        with pytest.raises(NoAuth, match="/hidden"):
            await read(paths)
    for read_one in (client.get, client.children, client.exists):
        with pytest.raises(NoAuth, match="/hidden"):
            await read_one("/hidden")
    await client.set("/hidden", b"y", 0)
    await client.create("/hidden/too", b"")
    assert await client.get_each([]) == [] and await client.children_each([]) == []


async def test_too_much_data_is_refused_and_harms_no_connection(site_clock: SiteClock, site: Site) -> None:
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


async def test_a_cancelled_operation_leaves_the_session_usable(site_clock: SiteClock, site: Site) -> None:
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


async def test_sync_makes_the_writes_of_others_visible(site_clock: SiteClock, site: Site) -> None:
    reader, writer = await site.client(), await site.client()
    await writer.create("/a", b"0")
    await writer.set("/a", b"1", 0)
    await reader.sync("/a")
    assert (await reader.get("/a")).data == b"1"


async def test_two_clients_agree_on_one_winner(site_clock: SiteClock, site: Site) -> None:
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
async def test_a_random_history_has_the_same_outcome_as_in_memory(
    site_clock: SiteClock, site: Site, seed: int, nursery: trio.Nursery
) -> None:
    reference_server = MemoryZooKeeper()
    reference = reference_server.client()
    await reference.start()
    client = await site.client(chroot=f"/random-{seed}")
    assert await carry_out(client, seed) == await carry_out(reference, seed)
