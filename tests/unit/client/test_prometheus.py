"""What Prometheus reads of clients, in the words of its own parser."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from strandline import Admin, ClientClosed, ClientCollector, Consumer, Producer, TrioAdmin, TrioProducer
from strandline.aio import AioAdmin, AioConsumer, AioProducer
from strandline.client.samples import WINDOW_S
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault
from unit.client.test_consumer import consumer
from unit.client.test_sync import cluster

__all__ = ["cluster"]

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(collector: ClientCollector) -> Samples:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector)
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    samples = [sample for family in families for sample in family.samples]
    found = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
    assert len(found) == len(samples), "each series stands there once"
    kinds = {sample.name: family.type for family in families for sample in family.samples}
    assert all(kind == ("counter" if name.endswith("_total") else "gauge") for name, kind in kinds.items())
    return found


def scraped_by_a_thread(collector: ClientCollector) -> Samples:
    """As prometheus' own server does it."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(scraped, collector).result()


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


async def test_figures_have_the_names_that_jmx_exporter_gives_to_those_of_kafkas_clients(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("web.clicks-eu")
    partition = TopicPartition("web.clicks-eu", 0)
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        sending = TrioProducer(fake.bootstrap, environment=fake.environment(), client_id="shop", linger_ms=0)
        async with sending, consumer(fake, client_id="audit") as reading:
            await (await sending.send_many(partition.topic, [(None, b"x" * 100)] * 10))
            await reading.assign([partition])
            reading.seek(partition, 0)
            await reading.poll(timeout_ms=1_000, max_records=4)
            await trio.sleep(2)
            told = scraped(ClientCollector(sending, reading))
            produced = "kafka_producer_producer_metrics"
            assert told[at(f"{produced}_record_send_total", client_id="shop")] == 10
            assert told[at(f"{produced}_connection_count", client_id="shop")] == 1
            age_s = told[at(f"{produced}_metadata_age", client_id="shop")]
            assert age_s * 1000 == sending.metrics()["metadata-age"] >= 2_000
            fetched = "kafka_consumer_consumer_fetch_manager_metrics"
            assert told[at(f"{fetched}_records_consumed_total", client_id="audit")] == 4
            assert told[at(f"{fetched}_records_lag_max", client_id="audit")] == 6
            assert told[at(f"{produced}_produce_throttle_time_max", client_id="shop")] == 0
            assert told[at(f"{fetched}_fetch_throttle_time_avg", client_id="audit")] == 0
            of_partition = {"client_id": "audit", "topic": "web.clicks-eu", "partition": "0"}
            assert told[at(f"{fetched}_records_lag", **of_partition)] == 6
            assigned = "kafka_consumer_consumer_coordinator_metrics_assigned_partitions"
            assert told[at(assigned, client_id="audit")] == 1
            assert at("kafka_consumer_consumer_metrics_request_latency_avg", client_id="audit") in told
        nursery.cancel_scope.cancel()


async def test_clients_of_one_name_are_told_apart_and_come_and_go() -> None:
    fake = FakeCluster()

    def producer(**settings: str) -> TrioProducer:
        return TrioProducer(fake.bootstrap, environment=fake.environment(), **settings)

    def names() -> set[str]:
        return {dict(labels)["client_id"] for _, labels in scraped(collector)}

    first, second = producer(client_id="shop"), producer(client_id="shop")
    collector = ClientCollector(first, second, producer(), producer())
    assert names() == {"shop", "shop-2", "producer-1", "producer-2"}
    collector.discard(first)
    collector.discard(first)
    collector.add(second)
    assert names() == {"shop-2", "producer-1", "producer-2"}, "nobody changes its name"
    collector.add(TrioAdmin(fake.bootstrap, environment=fake.environment(), client_id="shop"))
    told = scraped(collector)
    assert told[at("kafka_admin_client_admin_client_metrics_request_total", client_id="shop")] == 0
    assert not any(name.endswith("metadata_age") for name, _ in told), "none of them has heard of the cluster"


async def test_a_client_that_was_ended_by_a_failure_does_not_spoil_the_scrape_of_others() -> None:
    class Ended(TrioProducer):
        def metrics(self) -> dict[str, float]:
            raise ClientClosed("this producer was ended")

    fake = FakeCluster()
    ended, well = (
        kind(fake.bootstrap, environment=fake.environment(), client_id=kind.__name__) for kind in (Ended, TrioProducer)
    )
    assert {dict(labels)["client_id"] for _, labels in scraped(ClientCollector(ended, well))} == {"TrioProducer"}


def test_clients_for_threads_and_for_asyncio_are_scraped_by_other_threads(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, client_id="a") as producer, Consumer(cluster.bootstrap, client_id="b") as reading:
        producer.send("t", b"x").result()
        with Admin(cluster.bootstrap, client_id="c") as admin:
            told = scraped_by_a_thread(collector := ClientCollector(producer, reading, admin))
    sent = at("kafka_producer_producer_metrics_record_send_total", client_id="a")
    assert told[sent] == scraped_by_a_thread(collector)[sent] == 1, "also when it was closed"

    async def asyncio_too() -> Samples:
        async with (
            AioProducer(cluster.bootstrap) as producer,
            AioConsumer(cluster.bootstrap) as reading,
            AioAdmin(cluster.bootstrap) as admin,
        ):
            await producer.send("t", b"x")
            return await asyncio.to_thread(scraped, ClientCollector(producer, reading, admin))

    names = {dict(labels)["client_id"] for _, labels in asyncio.run(asyncio_too())}
    assert names == {"producer-1", "consumer-1", "admin-1"}


async def test_a_thread_is_told_of_clients_for_trio_what_their_loop_is_told(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    partition = TopicPartition("t", 0)
    fake.fill(partition, [b"x"] * 20)
    environment = fake.environment()
    of_producer = "kafka_producer_producer_metrics_request_latency"
    of_admin = "kafka_admin_client_admin_client_metrics_request_latency"
    latencies = [at(f"{of_producer}_{figure}", client_id="a") for figure in ("avg", "max")]
    latencies += [at(f"{of_admin}_{figure}", client_id="c") for figure in ("avg", "max")]
    lag = at("kafka_consumer_consumer_fetch_manager_metrics_records_lag_max", client_id="b")

    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with (
            TrioProducer(fake.bootstrap, environment=environment, client_id="a", linger_ms=0) as producer,
            consumer(fake, client_id="b") as reading,
            TrioAdmin(fake.bootstrap, environment=environment, client_id="c") as admin,
        ):
            collector = ClientCollector(producer, reading, admin)
            for api_key in (ApiKey.PRODUCE, ApiKey.CREATE_TOPICS):
                fake.brokers[0].faults[api_key].append(Fault(delay_s=2, apply=True))
            await (await producer.send("t", b"x"))
            await admin.create_topic("u", 1, 1)
            await reading.assign([partition])
            await reading.poll(timeout_ms=1_000, max_records=5)
            await reading.poll_columns(timeout_ms=1_000)
            stalled = scraped_by_a_thread(collector)
            assert stalled == scraped(collector)
            assert all(stalled[latency] > 0 for latency in latencies) and stalled[lag] > 0

            await trio.sleep(2 * WINDOW_S)
            told = scraped_by_a_thread(collector)
            assert told == scraped(collector)
            assert {told[figure] for figure in [*latencies, lag]} == {0}
            ages_s = [age_s for (name, _), age_s in told.items() if name.endswith("metadata_age")]
            assert len(ages_s) == 3 and max(ages_s) >= 2 * WINDOW_S

        closed = scraped_by_a_thread(collector)
        assert closed == scraped(collector)
        assert not any(name.endswith("metadata_age") for name, _ in closed), "they hear no more"
        nursery.cancel_scope.cancel()
