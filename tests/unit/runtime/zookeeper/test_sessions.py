"""Sessions and watches, as every implementation of the coordination seam has them: in memory and the real ZooKeeper.

On the in-memory one trio's clock is virtual, on the real one it is not: no test sleeps, all wait for what they expect.
"""

from __future__ import annotations

import pytest
import trio
import trio.testing

from strandline.runtime.coordination import (
    Check,
    ConnectionLost,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionState,
    SetData,
    TransactionFailed,
    WatchEvent,
)
from support.coordination_sites import (
    PATIENCE_S,
    SESSION_TIMEOUT_MS,
    SHORT_SESSION_TIMEOUT_MS,
    Events,
    Site,
    States,
)

SiteClock = trio.abc.Clock | None


async def test_start_names_the_server_when_none_answers(site_clock: SiteClock, site: Site) -> None:
    await site.stop()
    client = site.unstarted_client()
    with pytest.raises(CoordinationError, match="answer"):
        await client.start()
    assert client.state is SessionState.SUSPENDED
    await client.close()


async def test_a_session_lasts_as_long_as_was_granted_and_hears_from_its_server(
    site_clock: SiteClock, site: Site
) -> None:
    assert site.unstarted_client().session_timeout_ms == SESSION_TIMEOUT_MS, "as asked for"
    client = await site.client(session_timeout_ms=SHORT_SESSION_TIMEOUT_MS)
    assert client.session_timeout_ms == SHORT_SESSION_TIMEOUT_MS
    await client.sync()
    assert client.seconds_since_contact() * 1000 < client.session_timeout_ms
    await site.stop()
    with trio.fail_after(PATIENCE_S):
        while client.seconds_since_contact() * 1000 <= client.session_timeout_ms:
            await trio.sleep(0.1)
    assert client.state is SessionState.SUSPENDED, "nobody has told it yet"


async def test_an_ephemeral_znode_is_owned_by_its_session_and_ends_with_it(site_clock: SiteClock, site: Site) -> None:
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


async def test_the_ephemeral_of_the_own_old_session_can_be_replaced_at_once(site_clock: SiteClock, site: Site) -> None:
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


async def test_the_ephemerals_of_a_crashed_client_vanish_when_its_session_expires(
    site_clock: SiteClock, site: Site
) -> None:
    victim, witness = await site.client(session_timeout_ms=SHORT_SESSION_TIMEOUT_MS), await site.client()
    await victim.create("/e", ephemeral=True)
    gone = Events()
    await witness.exists("/e", gone)
    await site.crash(victim)
    await gone.until(WatchEvent.DELETED)


async def test_a_watch_fires_once_for_the_change_that_its_read_looks_at(site_clock: SiteClock, site: Site) -> None:
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


async def test_the_end_of_a_znode_fires_data_and_children_watches_and_a_failed_read_sets_none(
    site_clock: SiteClock, site: Site
) -> None:
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


async def test_a_watch_event_comes_before_any_read_that_shows_the_change(site_clock: SiteClock, site: Site) -> None:
    reader, writer = await site.client(), await site.client()
    await writer.create("/a", b"")
    for version in range(20):
        fired = Events()
        await reader.get("/a", fired)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.set, "/a", b"", version)
            with trio.fail_after(PATIENCE_S):
                while (await reader.exists("/a")).version == version:
                    assert reader.state is SessionState.CONNECTED
            assert fired.seen == [WatchEvent.CHANGED]


async def test_a_transaction_fires_the_watches_of_all_it_changed(site_clock: SiteClock, site: Site) -> None:
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


async def test_a_session_survives_a_restart_of_the_server_and_watches_fire_once_with_connection(
    site_clock: SiteClock, site: Site
) -> None:
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


async def test_an_expired_session_is_reported_and_followed_by_a_new_one(site_clock: SiteClock, site: Site) -> None:
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


async def test_a_listener_can_register_again_from_within_the_news_of_the_expiry(
    site_clock: SiteClock, site: Site
) -> None:
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


async def test_close_ends_what_waits_and_is_idempotent_even_when_no_server_answers(
    site_clock: SiteClock, site: Site
) -> None:
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


async def test_start_waits_for_a_server_that_comes_up_meanwhile(site_clock: SiteClock, site: Site) -> None:
    client = site.unstarted_client()
    await site.stop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.start)
        await trio.testing.wait_all_tasks_blocked()
        await site.start()
    assert client.state is SessionState.CONNECTED
    assert await client.children("/") == []


async def test_what_was_cancelled_before_it_was_sent_is_never_carried_out(site_clock: SiteClock, site: Site) -> None:
    client = await site.client()
    states = States(client)
    await site.stop()
    await states.until(SessionState.SUSPENDED)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.create, "/ghost")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await site.start()
    await states.until(SessionState.SUSPENDED, SessionState.CONNECTED)
    await client.create("/real")
    assert await client.children("/") == ["real"]
