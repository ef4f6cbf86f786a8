"""Which kinds of entities a broker serves: who hears of a change, and who is named because nobody does."""

from __future__ import annotations

from collections.abc import Collection

import pytest
import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from strandline.broker.admin.config_changes import MENDED_CHECK_S, ConfigChanges, EntityKind
from strandline.broker.admin.topic_configs import TopicConfigs
from strandline.protocol.znodes import CONFIG_CHANGES_PATH, ConfigChangeZnode, ConfigZnode
from strandline.runtime.config.reading import load_broker_config
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from support.replica_site import ReplicaSite


class Quotas:
    """A kind that a later version may serve."""

    def __init__(self) -> None:
        self.asked: list[Collection[str] | None] = []
        self.to_mend: list[str] = []

    async def read_again(self, names: Collection[str] | None) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(names)


async def test_a_kind_with_a_row_hears_of_its_entities_and_one_without_is_named(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    zookeeper, logs, site, quotas = MemoryZooKeeper(), LogCapture(), ReplicaSite(), Quotas()
    log = structlog.wrap_logger(structlog.PrintLogger(), processors=[logs])
    client = zookeeper.client()
    await client.start()
    await client.create(CONFIG_CHANGES_PATH, parents=True)
    for kind in ("clients", "ips"):
        await client.create(ConfigZnode.path("one", kind), ConfigZnode({}).encode(), parents=True)
    config = load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:0"})
    changes = ConfigChanges(config, client, log)
    await changes.begin()
    changes.kinds["clients"] = EntityKind(quotas.read_again, lambda: quotas.to_mend)
    topics = TopicConfigs(changes.config, client, log)
    nursery.start_soon(changes.run, topics, site.replicas, site.data.burst)
    await trio.sleep(1)

    def named() -> list[tuple[str, list[str]]]:
        return [(entry["kind"], entry["names"]) for entry in logs.entries if "not served" in entry["event"]]

    async def announce(entity: str) -> None:
        await client.create(ConfigChangeZnode.SEQUENCE_PATH, ConfigChangeZnode(entity).encode(), sequence=True)
        await trio.sleep(1)

    assert (named(), quotas.asked) == ([("ips", ["one"])], [])
    await announce("users/alice/clients/app")
    await announce("clients/app")
    assert (named()[1:], quotas.asked) == ([("users", ["alice/clients/app"])], [{"app"}])
    quotas.to_mend = ["app"]
    await trio.sleep(MENDED_CHECK_S)
    quotas.to_mend = []
    assert quotas.asked[1:] == [{"app"}]
    await client.create(ConfigChangeZnode.SEQUENCE_PATH, b"junk", sequence=True)
    await trio.sleep(1)
    assert quotas.asked[2:] == [None], "anybody may be meant"


async def test_folders_that_may_not_be_read_are_named_and_the_broker_goes_on(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper, logs, site = MemoryZooKeeper(), LogCapture(), ReplicaSite()
    log = structlog.wrap_logger(structlog.PrintLogger(), processors=[logs])
    client = zookeeper.client()
    await client.start()
    await client.create(CONFIG_CHANGES_PATH, parents=True)
    await client.create(ConfigZnode.path("one", "users"), parents=True)
    zookeeper.tree.unreadable = {"/config/users"}
    changes = ConfigChanges(load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:0"}), client, log)
    await changes.begin()
    nursery.start_soon(changes.run, TopicConfigs(changes.config, client, log), site.replicas, site.data.burst)
    await trio.sleep(5)
    assert [entry["kinds"] for entry in logs.entries if "not served" in entry["event"]] == [["clients", "ips", "users"]]
