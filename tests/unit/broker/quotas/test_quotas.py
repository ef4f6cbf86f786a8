"""Reading quotas from ZooKeeper where it does not have them as they should be."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from strandline.broker.quotas import entities
from strandline.broker.quotas import quotas as module
from strandline.broker.quotas.entities import QuotaEntity
from strandline.broker.quotas.quotas import Quotas
from strandline.protocol.znodes import CONFIG_PATH, ConfigZnode
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.standing import Standing
from strandline.runtime.coordination import NoAuth, Znode
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper

ALICE = QuotaEntity("alice")


async def quotas_of(
    nursery: trio.Nursery, logs: LogCapture, zookeeper: MemoryZooKeeper | None = None
) -> tuple[Quotas, MemoryCoordination]:
    zookeeper = zookeeper or MemoryZooKeeper()
    client = zookeeper.client()
    await client.start()
    current = CurrentConfig(load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:0"}))
    return Quotas(current, client, structlog.wrap_logger(structlog.PrintLogger(), processors=[logs])), client


async def put(client: MemoryCoordination, path: str, **config: str) -> None:
    await client.create(f"{CONFIG_PATH}/{path}", ConfigZnode(config).encode(), parents=True)


async def test_without_folders_there_are_none(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    quotas, _ = await quotas_of(nursery, LogCapture())
    await quotas.read_all()
    assert quotas.values == {} and not quotas.connections._of_ips


async def test_all_places_are_read_and_what_is_gone_counts_no_more(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    logs = LogCapture()
    quotas, client = await quotas_of(nursery, logs)
    await put(client, "users/bob/clients/%3Ca%20b", producer_byte_rate="1")
    await put(client, "users/alice", producer_byte_rate="2", request_percentage="2.5")
    await put(client, "clients/<default>", consumer_byte_rate="3")
    await put(client, "ips/10.0.0.7", connection_creation_rate="4")
    await quotas.read_all()
    assert quotas.values == {
        QuotaEntity("bob", "%3Ca%20b"): {"producer_byte_rate": 1},
        ALICE: {"producer_byte_rate": 2, "request_percentage": 2.5},
        QuotaEntity(client_id="<default>"): {"consumer_byte_rate": 3},
        QuotaEntity(ip="10.0.0.7"): {"connection_creation_rate": 4},
    }
    assert quotas.sensors["producer_byte_rate"].bounds == {QuotaEntity("bob", "%3Ca%20b"): 1, ALICE: 2}
    assert [entry for entry in logs.entries if entry["log_level"] != "info"] == [], "bob's own znode is empty"
    await client.delete(f"{CONFIG_PATH}/users/alice")
    await quotas.readers()["users"][0]({"alice"})
    assert ALICE not in quotas.values and len(quotas.values) == 3


async def test_an_address_has_its_quota_however_its_znode_spells_it(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    quotas, client = await quotas_of(nursery, LogCapture())
    for name, rate in (("0:0:0:0:0:0:0:1", "4"), ("::1", "5"), ("%3A%3A2", "6"), ("::ffff:10.0.0.7", "7")):
        await put(client, f"ips/{name}", connection_creation_rate=rate)
    await quotas.read_all()
    bounds = {QuotaEntity(ip="::1"): 5, QuotaEntity(ip="::2"): 6, QuotaEntity(ip="10.0.0.7"): 7}
    assert quotas.connections._of_ips == bounds, "of two spellings its own counts"


async def test_a_folder_that_may_not_be_read_is_named_once_and_the_last_good_ones_count(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    logs, zookeeper = LogCapture(), MemoryZooKeeper()
    quotas, client = await quotas_of(nursery, logs, zookeeper)
    await put(client, "users/alice", producer_byte_rate="2")
    await quotas.read_all()
    zookeeper.tree.unreadable = {f"{CONFIG_PATH}/users"}
    await quotas.read_all()
    await quotas.read_all()
    assert quotas.values == {ALICE: {"producer_byte_rate": 2}}
    assert quotas.readers()["users"][1]() == ["*"] and quotas.readers()["ips"][1]() == []
    assert [entry["kind"] for entry in logs.entries if "cannot be read" in entry["event"]] == ["users"]
    zookeeper.tree.unreadable.clear()
    await quotas.read_all()
    assert quotas.readers()["users"][1]() == []


async def test_one_that_may_not_be_read_keeps_no_other_from_counting(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    logs, zookeeper = LogCapture(), MemoryZooKeeper()
    quotas, client = await quotas_of(nursery, logs, zookeeper)
    await put(client, "users/alice", producer_byte_rate="2")
    await put(client, "users/bob", producer_byte_rate="3")
    zookeeper.tree.unreadable = {f"{CONFIG_PATH}/users/alice"}
    for _ in range(2):
        await quotas.read_all()
    assert quotas.values == await quotas.as_they_stand() == {QuotaEntity("bob"): {"producer_byte_rate": 3}}
    assert [entry["entity"] for entry in logs.entries if entry["log_level"] == "error"] == ["users/alice"], "once"
    assert quotas.readers()["users"][1]() == ["alice"], "it is looked at again"
    zookeeper.tree.unreadable.clear()
    await quotas.readers()["users"][0](["alice"])
    assert quotas.values[ALICE] == {"producer_byte_rate": 2}


async def test_a_users_folder_that_may_not_be_read_keeps_no_other_from_counting(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    zookeeper, bobs = MemoryZooKeeper(), QuotaEntity("bob", "b")
    quotas, client = await quotas_of(nursery, LogCapture(), zookeeper)
    await put(client, "users/alice/clients/a", producer_byte_rate="2")
    await put(client, "users/bob/clients/b", producer_byte_rate="3")
    zookeeper.tree.unreadable = {f"{CONFIG_PATH}/users/alice/clients"}
    await quotas.read_all()
    assert quotas.sensors["producer_byte_rate"].bounds == {bobs: 3}
    assert await quotas.as_they_stand() == {bobs: {"producer_byte_rate": 3}}
    assert quotas.readers()["users"][1]() == ["*"], "it is looked into again"
    zookeeper.tree.unreadable.clear()
    await quotas.readers()["users"][0](None)
    assert set(quotas.values) == {QuotaEntity("alice", "a"), bobs} and not quotas.readers()["users"][1]()


async def test_the_rate_of_new_connections_changes_while_the_broker_runs(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    current = CurrentConfig(load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:0"}))
    rates = Quotas(current, MemoryZooKeeper().client(), structlog.get_logger()).connections
    for rate, owed_s in ((1, 9.0), (2**31 - 1, 0.0)):
        current.change(msgspec.structs.replace(current.value, max_connection_creation_rate=rate))
        for _ in range(20):
            rates.note_accepted(0.0)
        assert rates.accept_in_s(0.0) == owed_s


async def test_what_cannot_be_read_is_not_described_from_memory(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    zookeeper = MemoryZooKeeper()
    quotas, client = await quotas_of(nursery, LogCapture(), zookeeper)
    await put(client, "users/alice", producer_byte_rate="2")
    await quotas.read_all()
    await client.set(f"{CONFIG_PATH}/users/alice", ConfigZnode({"producer_byte_rate": "fast"}).encode(), -1)
    assert await quotas.as_they_stand() == {ALICE: {"producer_byte_rate": 2}}, "what counts"

    zookeeper.tree.unreadable = {f"{CONFIG_PATH}/users"}
    with pytest.raises(NoAuth):
        await quotas.as_they_stand()


async def test_others_run_while_many_are_read(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, and again where the session was lost."""
    monkeypatch.setattr(module, "READ_PER_STEP", 10)
    quotas, client = await quotas_of(nursery, LogCapture())
    for number in range(35):
        await put(client, f"users/u{number:02}", producer_byte_rate="2")
    looked_at, at_each_turn = list[str](), [0]

    async def take_turns() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            at_each_turn.append(len(looked_at))

    def entity_at(path: str) -> QuotaEntity | None:
        looked_at.append(path)
        return entities.entity_at(path)

    def quota_standing(path: str, znode: Znode | None) -> Standing:
        looked_at.append(path)
        return standing_before(path, znode)

    standing_before = module.quota_standing
    monkeypatch.setattr(module, "entity_at", entity_at)
    monkeypatch.setattr(module, "quota_standing", quota_standing)
    for _ in range(2):
        async with trio.open_nursery() as turns:
            turns.start_soon(take_turns)
            await quotas.read_all()
            turns.cancel_scope.cancel()
    assert len(looked_at) == 2 * 2 * 35 and len(quotas.values) == 35
    assert max(after - before for before, after in pairwise(at_each_turn)) <= 2 * 10
