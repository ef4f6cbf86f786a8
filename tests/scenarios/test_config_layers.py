"""Where a value may stand, from the topic's own down to the built-in default: what counts, what is said of it in both
dialects, and changes at moments that are easily missed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.api import ApiKey
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.testkit.kafka_client import KafkaClient
from support.effects import FOR_ALL, ONE, Site, put

TOPIC, ALL, OWN, FILE, DEFAULT = 1, 3, 2, 4, 5
"""Sources, as KIP-226 numbers them."""
Places = list[tuple[str, str | None, int]]


async def native_places(site: Site, kind: ConfigResource, name: str, key: str) -> Places:
    async with site.cluster.admin() as admin:
        (entry,) = [each for each in await admin.describe_configs(kind, name) if each.name == key]
    assert (entry.value, entry.config_source) == (entry.synonyms[0].value, entry.synonyms[0].source)
    return [(each.name, each.value, each.source) for each in entry.synonyms]


async def kafka_answer(site: Site, kind: ConfigResource, name: str, key: str, version: int) -> Any:
    *_, address = site.cluster.broker(1).listeners.addresses.values()
    client = KafkaClient(await site.cluster.network.node("kafka client").connect(address))
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], include_synonyms=True)
    client.close()
    (entry,) = answer.results[0].configs
    return entry


async def test_what_no_longer_stands_gives_way_to_what_stands_below_it(autojump_clock: MockClock) -> None:
    """From the topic down to the default, told alike in both dialects."""
    async with Site.running({"log.retention.ms": "4000000"}) as site:
        tp = await site.topic(retention_ms="1000000")
        await put(site.cluster, ONE, {"log.retention.ms": "2000000"})
        await put(site.cluster, FOR_ALL, {"log.retention.ms": "3000000"})
        key = "log.retention.ms"
        places: Places = [
            ("retention.ms", "1000000", TOPIC),
            (key, "2000000", OWN),
            (key, "3000000", ALL),
            (key, "4000000", FILE),
            ("log.retention.hours", "168", DEFAULT),
        ]
        for above, entity in enumerate((f"topics/{tp.topic}", ONE, FOR_ALL, None)):
            assert await native_places(site, ConfigResource.TOPIC, tp.topic, "retention.ms") == places[above:]
            told = await kafka_answer(site, ConfigResource.TOPIC, tp.topic, "retention.ms", 4)
            assert [(each.name, each.value, each.source) for each in told.synonyms] == places[above:]
            assert (told.value, told.config_source) == (places[above][1], places[above][2])
            first = await kafka_answer(site, ConfigResource.TOPIC, tp.topic, "retention.ms", 1)
            assert (first.value, first.config_source, first.read_only) == (*places[above][1:], False)
            of_broker = places[max(above, 1) :]
            assert await native_places(site, ConfigResource.BROKER, "1", key) == of_broker
            assert site.cluster.partition(1, tp).config.retention_ms == int(places[above][1] or "")
            if entity is not None:
                await put(site.cluster, entity, {})


async def test_a_value_of_one_broker_that_cannot_be_used_leaves_that_of_all(autojump_clock: MockClock) -> None:
    """A tool that writes znodes itself asks nobody."""
    async with Site.running({}) as site:
        await put(site.cluster, FOR_ALL, {"num.io.threads": "6"})
        for text in ("many", "0", "1000000000", ""):
            await put(site.cluster, ONE, {"num.io.threads": text})
            assert site.cluster.broker(1).config_changes.config.value.num_io_threads == 6
            places = await native_places(site, ConfigResource.BROKER, "1", "num.io.threads")
            assert places[0] == ("num.io.threads", "6", ALL)
            assert any("num.io.threads" in line and "to be mended" in line for line in site.cluster.history)


@pytest.mark.parametrize(("entity", "name", "source"), [(FOR_ALL, "", ALL), (ONE, "1", OWN)])
async def test_what_stands_wrong_is_told_with_its_place_until_it_is_deleted(
    entity: str, name: str, source: int, autojump_clock: MockClock
) -> None:
    """Both dialects name it, since it holds up what is deleted, and an alteration takes it away."""
    async with Site.running({}) as site:
        await put(site.cluster, entity, {"log.retention.bytes": "abc", "log.retention.hours": "5"})
        wrong: Places = [("log.retention.bytes", "abc", source), ("log.retention.hours", "5", source)]
        for key, text, _ in wrong:
            told = await kafka_answer(site, ConfigResource.BROKER, "1", key, 4)
            assert (key, text, source) in [(each.name, each.value, each.source) for each in told.synonyms]
            assert (told.value, told.config_source) == (told.synonyms[0].value, DEFAULT), "programs go by what counts"
        async with site.cluster.admin() as admin:
            found = await admin.describe_configs(ConfigResource.BROKER, name)
            places = [
                (e.name, place.value, place.source) for e in found for place in e.synonyms if e.name == place.name
            ]
            assert sorted(place for place in places if place[2] == source) == wrong
            if not name:
                assert [(each.name, each.value, each.config_source) for each in found] == wrong
            await admin.alter_configs(ConfigResource.BROKER, name, {key: None for key, *_ in wrong})
            left = await admin.describe_configs(ConfigResource.BROKER, name)
            assert not any(place.source == source for each in left for place in each.synonyms)
        config = site.cluster.broker(1).config_changes.config
        await site.cluster.until(lambda: not config.value.undecided, "taken over")


SECRETS = {"ssl.key.password": "hunter2", "listener.name.plaintext.ssl.keystore.password": "hunter3"}


@pytest.mark.parametrize("entity", [ONE, FOR_ALL, "topics/t1"])
async def test_a_password_is_never_shown(entity: str, autojump_clock: MockClock) -> None:
    """Neither that of a file nor one in a znode, in no answer and in no log."""
    async with Site.running(SECRETS) as site:
        await site.topic()
        await put(site.cluster, entity, SECRETS)
        shown: list[object] = list(site.cluster.history)
        async with site.cluster.admin() as admin:
            for kind, name in ((ConfigResource.BROKER, "1"), (ConfigResource.BROKER, ""), (ConfigResource.TOPIC, "t1")):
                entries = await admin.describe_configs(kind, name)
                shown += entries
                assert all(each.is_sensitive and each.value is None for each in entries if each.name in SECRETS)
        assert any("ssl.key.password" in repr(each) for each in shown), "they are named"
        assert not any("hunter" in repr(each) for each in shown)


# --- moments ---------------------------------------------------------------------------------------------------------


async def restarted_meanwhile(
    site: Site, broker: int, changes: Mapping[str, Mapping[str, str]], after_s: float
) -> None:
    """That broker starts, on a slow disk; so long after it began the znodes change."""
    site.cluster.nodes[broker].disk_delay_s = 1.0
    await site.cluster.stop(broker)
    began_at = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.cluster.start_broker, broker)
        await trio.sleep(after_s)
        for entity, configs in changes.items():
            nursery.start_soon(partial(put, site.cluster, entity, configs))
    assert trio.current_time() > began_at + 3, "its start took longer than that"
    site.cluster.nodes[broker].disk_delay_s = 0.0
    await trio.sleep(5)


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5, 2.5])
async def test_a_change_while_a_broker_starts_is_not_missed(after_s: float, autojump_clock: MockClock) -> None:
    async with Site.running({}, brokers=2) as site:
        tp = await site.topic(replicas=[1, 2])
        of_all = {"num.io.threads": "6", "log.segment.bytes": "2000"}
        await restarted_meanwhile(site, 2, {FOR_ALL: of_all, f"topics/{tp.topic}": {"flush.ms": "7"}}, after_s)
        config = site.cluster.partition(2, tp).config
        assert (config.segment_bytes, config.flush_ms) == (2000, 7)
        assert site.cluster.broker(2).config_changes.config.value.num_io_threads == 6


async def test_of_changes_at_once_each_counts(autojump_clock: MockClock) -> None:
    async with Site.running({}) as site:
        topics = [await site.topic() for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for number, tp in enumerate(topics, 1):
                nursery.start_soon(put, site.cluster, f"topics/{tp.topic}", {"retention.ms": f"{number}000000"})
            nursery.start_soon(put, site.cluster, FOR_ALL, {"log.segment.bytes": "2000", "num.io.threads": "6"})
            nursery.start_soon(put, site.cluster, ONE, {"log.segment.bytes": "3000"})
        found = [site.cluster.partition(1, tp).config for tp in topics]
        assert [each.retention_ms for each in found] == [1000000, 2000000, 3000000, 4000000, 5000000]
        assert {each.segment_bytes for each in found} == {3000}
        assert site.cluster.broker(1).config_changes.config.value.num_io_threads == 6


async def test_a_topic_that_comes_later_has_what_counts_by_then(autojump_clock: MockClock) -> None:
    async with Site.running({}) as site:
        await put(site.cluster, FOR_ALL, {"log.segment.bytes": "2000"})
        tp: TopicPartition = await site.topic()
        assert site.cluster.partition(1, tp).config.segment_bytes == 2000
