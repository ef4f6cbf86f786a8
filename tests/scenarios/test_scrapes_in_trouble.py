"""`/metrics` while a broker starts, stops and changes: what was begun is a whole answer, which Prometheus reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.admin.pages import Answer
from strandline.broker.metrics import exposition, families
from strandline.broker.metrics.exposition import Exposition
from strandline.protocol.messages import ConfigResource
from strandline.protocol.znodes import BrokerIdZnode
from strandline.runtime.network import CannotConnect
from strandline.testkit.cluster import MemoryCluster
from support.scenario import T0, cluster_with_topic, numbered
from support.scraping import OPENMETRICS, TEXT, Scrape, scrape

STATE = "kafka_server_kafkaserver_brokerstate"
FAILURES = "strandline_metrics_source_failures_total"
OF_PARTITIONS = ("kafka_log_log_size", "kafka_topic_partition_leader", "kafka_cluster_partition_insyncreplicascount")
TOPICS = [f"t-{number}" for number in range(12)]


# --- start and stop --------------------------------------------------------------------------------------------------


async def test_a_broker_that_waits_for_its_registration_tells_that_it_starts(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 3))
        cluster.crash(3)  # so it takes over what its last life has registered
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start_broker, 3)
            await cluster.until(lambda: cluster.nodes[3].is_up, "it has begun")
            held = cluster.coordination(3).hold_writes(lambda some: BrokerIdZnode.path(3) in repr(some))
            with trio.fail_after(30):
                await held.reached.wait()
            found = await scrape(cluster, 3)
            assert found.value(STATE) == 1
            assert found.value("kafka_server_sessionexpirelistener_sessionstate", state="CONNECTED") == 1
            assert found.of_partition("kafka_log_log_logendoffset", "t") is None, "it was told of no role"
            assert not any(found.rows(FAILURES).values())
            held.release()
        assert (await scrape(cluster, 3)).value(STATE) == 3


async def test_a_broker_that_leaves_is_scraped_until_it_is_gone(autojump_clock: MockClock) -> None:
    """6 while others take over what it led, which takes as long as they do not answer."""
    async with cluster_with_topic([3, 2, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 3))
        cluster.network.link("broker-1", "broker-3").latency_s = 0.5
        states = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.stop, 3)
            await trio.sleep(0.05)
            while cluster.nodes[3].is_up:
                try:
                    found = await scrape(cluster, 3)
                except (CannotConnect, ValueError):  # the port is closed, or closed while it answered
                    break
                states.append(found.value(STATE))
                assert not any(found.rows(FAILURES).values())
                await trio.sleep(0.2)
        assert states == sorted(states) and set(states) <= {3, 6, 7} and 6 in states


# --- between two slices ----------------------------------------------------------------------------------------------


class SlowReader:
    """Takes an answer piece by piece, each of which has one sample at most of a family that may have many."""

    def __init__(self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, broker_id: int = 1) -> None:
        monkeypatch.setattr(families, "SLICE_SAMPLES", 1)
        monkeypatch.setattr(exposition, "PIECE_BYTES", 1)
        self.exposition = Exposition(cluster.broker(broker_id).metrics.collect)

    async def read(self, accept: str, now_and_then: Callable[[str], Awaitable[None]]) -> Scrape:
        """now_and_then: awaited after each piece, which it gets."""
        answer: Answer = self.exposition.answer({"accept": accept})
        assert not isinstance(answer.body, bytes)
        text = b""
        async for piece in answer.body:
            text += piece
            await now_and_then(piece.decode())
        return Scrape(text.decode(), accept)


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS], ids=["text", "OpenMetrics"])
async def test_topics_may_go_while_a_scrape_tells_of_them(
    accept: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One goes after the first series of each of many families."""
    async with MemoryCluster(1).running() as cluster, cluster.admin() as admin:
        for name in TOPICS:
            await admin.create_topic(name, 1, 1)
        left = list(TOPICS)
        last = ""

        async def delete_one(piece: str) -> None:
            nonlocal last
            name = piece.splitlines()[-1].partition("{")[0] if piece else ""
            if 'topic="' in piece and name != last and len(left) > 1:
                last = name
                await admin.delete_topic(left.pop())
                await trio.sleep(0.5)

        found = await SlowReader(cluster, monkeypatch).read(accept, delete_one)
        assert left == TOPICS[:1], "eleven went meanwhile"
        assert not any(found.rows(FAILURES).values())
        told = [{labels[1] for labels in found.rows(name)} for name in OF_PARTITIONS]
        assert all({"t-0"} <= topics <= {*TOPICS} for topics in told)
        after = await scrape(cluster, 1, accept)
        assert after.rows("kafka_log_log_size").keys() == {("0", "t-0")}


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS], ids=["text", "OpenMetrics"])
async def test_a_leader_may_lose_its_role_while_a_scrape_tells_of_it(
    accept: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_with_topic() as (cluster, *_):
        async with cluster.admin() as admin:
            for name in TOPICS:
                await admin.create_topic(name, assignments={0: [1, 2]})
            moved = False

            async def move(piece: str) -> None:
                nonlocal moved
                if not moved and piece.startswith("kafka_cluster_partition_underreplicated{"):
                    moved = True
                    cluster.cut_both(1, 2)
                    cluster.cut_both(1, 3)
                    cluster.cut_from_zookeeper(1)
                    await trio.sleep(30)

            found = await SlowReader(cluster, monkeypatch).read(accept, move)
        assert moved and cluster.leader(T0) != 1
        assert not any(found.rows(FAILURES).values())


async def test_series_of_partitions_may_be_switched_off_amid_a_scrape(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun ends as it began, or is left out as a whole; the next scrape has none, and they come back."""
    async with MemoryCluster(1).running() as cluster, cluster.admin() as admin:
        for name in TOPICS:
            await admin.create_topic(name, 1, 1)
        switched = False

        async def set_to(value: str) -> None:
            await admin.alter_configs(ConfigResource.BROKER, "", {"metrics.per.partition": value})
            config = cluster.broker(1).config_changes.config
            await cluster.until(lambda: config.value.metrics_per_partition == (value == "true"), "it counts")

        async def switch_off(piece: str) -> None:
            nonlocal switched
            if not switched and piece.startswith("kafka_log_log_size{"):
                switched = True
                await set_to("false")

        found = await SlowReader(cluster, monkeypatch).read(TEXT, switch_off)
        assert switched
        assert {len(found.rows(f"kafka_log_log_{name}")) for name in ("size", "logendoffset")} == {len(TOPICS)}
        assert not found.rows("kafka_topic_partition_leader"), "a source that came later had it switched off"
        assert not [series for series in (await scrape(cluster, 1)).samples if "partition" in dict(series[1])]
        await set_to("true")
        assert len((await scrape(cluster, 1)).rows("kafka_topic_partition_leader")) == len(TOPICS)
