"""What a broker knows of its topics' configurations while they are read, change, and are read at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.admin.topic_configs import TopicConfigs
from strandline.protocol.types import NO_TOPIC_ID
from strandline.protocol.znodes import ConfigZnode
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.coordination import Coordination, Znode, ZnodeStat
from support.storage_site import Reports

CONFIG = load_broker_config(
    {"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data", "log.retention.ms": "60000"}
)
T = ("t", b"\x01" * 16)


class Znodes:
    """A ZooKeeper that takes its time: what it says is how things stood when it was asked."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.delay_s = 0.0
        self.reads = 0

    def put(self, name: str, **overrides: str) -> None:
        config = {key.replace("_", "."): value for key, value in overrides.items()}
        self.data[ConfigZnode.path(name)] = ConfigZnode(config).encode()

    async def get_each(self, paths: Sequence[str]) -> list[Znode | None]:
        self.reads += len(paths)
        found = [self.data.get(path) for path in paths]
        await trio.sleep(self.delay_s)
        return [None if data is None else Znode(data, ZnodeStat(0, 0, 0, 0, 0, 0)) for data in found]


class Site:
    def __init__(self) -> None:
        self.znodes = Znodes()
        self.log: Any = _Log()
        self.config = CurrentConfig(CONFIG)
        self.topics = TopicConfigs(self.config, cast(Coordination, self.znodes), self.log)

    @property
    def retention_ms(self) -> int:
        return self.topics.get(T).retention_ms


class _Log(Reports):
    error = Reports.warning
    info = Reports.warning


@pytest.fixture
def site() -> Site:
    return Site()


async def test_a_topic_that_is_not_known_yet_or_any_more_keeps_everything(
    site: Site, autojump_clock: MockClock
) -> None:
    assert site.retention_ms == -1
    await site.topics.load([T])
    assert site.retention_ms == 60000, "ZooKeeper says that it overrides nothing"
    site.topics.forget(T)
    assert site.retention_ms == -1
    assert site.topics.current(*T) is None


async def test_of_two_readings_the_later_one_counts(site: Site, autojump_clock: MockClock) -> None:
    site.znodes.put("t", retention_ms="1")
    async with trio.open_nursery() as nursery:
        site.znodes.delay_s = 5
        nursery.start_soon(site.topics.load, [T])
        await trio.sleep(1)
        site.znodes.put("t", retention_ms="2")
        site.znodes.delay_s = 0
        nursery.start_soon(site.topics.read_again, {"t"})
    assert site.retention_ms == 2


async def test_a_topic_that_is_deleted_while_it_is_read_again_is_known_no_more(
    site: Site, autojump_clock: MockClock
) -> None:
    await site.topics.load([T])
    site.znodes.put("t", retention_ms="nonsense")
    site.znodes.delay_s = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.topics.read_again)
        await trio.sleep(0.5)
        site.topics.forget(T)
    assert site.topics.current(*T) is None
    assert site.topics.troubled() == [], "nobody waits for it to be mended"


async def test_what_is_known_is_not_read_and_not_waited_for(site: Site, autojump_clock: MockClock) -> None:
    await site.topics.load([T])
    reads = site.znodes.reads
    async with trio.open_nursery() as nursery:
        site.znodes.delay_s = 5
        nursery.start_soon(site.topics.load, [("other", T[1])])
        await trio.sleep(1)
        began = trio.current_time()
        await site.topics.load([T])
        assert trio.current_time() == began
    assert site.znodes.reads == reads + 1


async def test_a_change_of_the_broker_reaches_topics_that_do_not_say_themselves(
    site: Site, autojump_clock: MockClock
) -> None:
    own = ("own", T[1])
    site.znodes.put("own", retention_ms="7")
    await site.topics.load([T, own])
    changed = load_broker_config(
        {"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data", "log.retention.ms": "-1"}
    )
    told: list[BrokerConfig] = []
    site.topics.watch(told.append)
    site.config.change(changed)
    await site.topics.resolve_again()
    assert (site.retention_ms, site.topics.get(own).retention_ms) == (-1, 7)
    assert [config.log_retention_ms for config in told] == [-1]
    await site.topics.read_again({"elsewhere"})
    assert len(told) == 2, "a topic that is not hosted here concerns who controls it"


async def test_trouble_is_told_once_until_it_is_another(site: Site, autojump_clock: MockClock) -> None:
    site.znodes.put("t", retention_ms="soon", junk="x")
    await site.topics.load([T])
    await site.topics.read_again(None)
    assert site.topics.troubled() == ["t"]
    told = site.log.names()
    assert sorted(told) == [
        "nothing of this topic is deleted or compacted until its configuration is mended",
        "topic keys without effect",
    ]
    site.znodes.put("t", retention_ms="later", junk="x")
    await site.topics.read_again({"t"})
    assert len(site.log.names()) > len(told)
    site.znodes.put("t", retention_ms="5")
    await site.topics.read_again({"t"})
    assert (site.topics.troubled(), site.retention_ms) == ([], 5)


async def test_a_topic_without_an_id_has_the_configuration_of_its_name(site: Site, autojump_clock: MockClock) -> None:
    site.znodes.put("t", retention_ms="9")
    await site.topics.load([("t", NO_TOPIC_ID)])
    config = site.topics.current(*T)
    assert config is not None and config.retention_ms == 9
