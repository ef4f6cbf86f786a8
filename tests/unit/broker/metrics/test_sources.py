"""The registry of metrics: a source that fails takes nothing else with it, and tells."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest
import structlog
import trio
from prometheus_client.core import Metric
from structlog.testing import LogCapture

import strandline
from strandline.broker.metrics.broker_life import BrokerState
from strandline.broker.metrics.families import counter, gauge, gauges
from strandline.broker.metrics.sources import FAILING_S, FAILURES, Failing, MetricSources
from strandline.testkit.cluster import MemoryCluster


class Registry:
    def __init__(self) -> None:
        self.log = LogCapture()
        self.sources = MetricSources(structlog.wrap_logger(None, processors=[self.log]))

    def scrape(self) -> list[str]:
        """Names of the families, in order; the last one counts failures."""
        return [metric.name for metric in self.sources.collect()]

    def failures(self) -> dict[str, float]:
        *_, last = self.sources.collect()
        return {sample.labels["source"]: sample.value for sample in last.samples}


@pytest.fixture
async def registry() -> Registry:
    return Registry()


async def test_sources_are_asked_in_the_order_in_which_they_were_added(registry: Registry) -> None:
    registry.sources.add("b", lambda: [gauge("b", "", 1)])
    registry.sources.add("a", lambda: [gauge("a", "", 1), counter("c", "", 1)])
    assert registry.scrape() == ["b", "a", "c", FAILURES]
    assert registry.failures() == {"b": 0, "a": 0}


async def test_a_source_counts_as_failing_for_a_while_whoever_collects_or_does_not(
    registry: Registry, autojump_clock: object
) -> None:
    is_broken = True

    def source() -> Iterator[Metric]:
        if is_broken:
            raise KeyError("a bug")
        yield gauge("x", "", 1)

    registry.sources.add("sometimes", source)
    assert registry.sources.failing.lately() == {}
    registry.scrape()
    is_broken = False
    registry.scrape()  # for another reader, that had more luck
    assert registry.sources.failing.lately() == {"sometimes": "KeyError('a bug')"}
    await trio.sleep(FAILING_S)
    assert registry.sources.failing.lately() == {}


def test_what_fails_is_looked_at_as_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = iter([0.0, 0.0, FAILING_S - 1, FAILING_S, FAILING_S])
    monkeypatch.setattr(trio, "current_time", lambda: next(now_s))
    failing = Failing()
    failing.note("a", "why")
    failing.note("b", "why, too")
    assert failing.lately() == {"a": "why", "b": "why, too"}
    assert failing.lately() == {}


async def test_a_source_that_raises_is_left_out_from_there_on_and_told_once_in_a_while(
    registry: Registry, autojump_clock: object
) -> None:
    def fails() -> Iterator[Metric]:
        yield gauge("told", "", 1)
        raise KeyError("a bug")

    registry.sources.add("bad", fails)
    registry.sources.add("good", lambda: [gauge("good", "", 1)])
    for _ in range(3):
        assert registry.scrape() == ["told", "good", FAILURES]
    assert registry.failures() == {"bad": 4, "good": 0}
    assert [(entry["source"], entry["error"]) for entry in registry.log.entries] == [("bad", "KeyError('a bug')")]
    await trio.sleep(61)
    registry.scrape()
    assert registry.log.entries[-1]["left_out"] == 3


@pytest.mark.parametrize(
    "families",
    [
        [gauge("x", "", 1), gauge("y", "", 1), gauge("x", "", 1)],  # slices that do not follow each other
        [counter("x", "", 1), gauge("x_total", "", 1)],  # two samples of one name
        [gauge("x_total", "", 1), counter("x", "", 1)],
    ],
)
async def test_a_family_whose_name_is_taken_is_left_out(registry: Registry, families: list[Metric]) -> None:
    registry.sources.add("twice", lambda: families)
    assert registry.scrape() == [*(family.name for family in families[:-1]), FAILURES]
    assert registry.failures() == {"twice": 2}


async def test_two_sources_cannot_have_the_same_family(registry: Registry) -> None:
    registry.sources.add("one", lambda: [gauge("x", "", 1)])
    registry.sources.add("two", lambda: [gauge("x", "", 2), gauge("y", "", 1)])
    assert registry.scrape() == ["x", FAILURES]
    assert registry.failures() == {"one": 0, "two": 2}


async def test_slices_of_a_family_follow_each_other(registry: Registry) -> None:
    registry.sources.add("wide", lambda: gauges("x", "", ("n",), [((str(n),), n) for n in range(600)]))
    assert registry.scrape() == ["x", "x", "x", FAILURES]
    assert registry.failures() == {"wide": 0}


def told(cluster: MemoryCluster) -> dict[str, float]:
    """The families of one sample."""
    return {metric.name: metric.samples[0].value for metric in cluster.broker(1).metrics.collect() if metric.samples}


async def test_a_broker_tells_its_state_and_what_it_is_built_of(autojump_clock: object) -> None:
    cluster = MemoryCluster(brokers=1)
    async with cluster.running():
        broker = cluster.broker(1)
        assert told(cluster)["kafka_server_kafkaserver_brokerstate"] == BrokerState.RUNNING == 3
        build = next(metric for metric in broker.metrics.collect() if metric.name == "strandline_build_info")
        assert [(sample.labels, sample.value) for sample in build.samples] == [
            ({"version": strandline.__version__, "python": platform.python_version()}, 1)
        ]
        seen = set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.stop, 1)
            while broker.state != BrokerState.NOT_RUNNING:
                seen.add(broker.state)
                await trio.sleep(0.001)
        assert seen >= {BrokerState.PENDING_CONTROLLED_SHUTDOWN}


async def test_no_source_of_a_broker_fails_or_repeats_a_family(autojump_clock: object) -> None:
    cluster = MemoryCluster(brokers=1)
    async with cluster.running():
        *_, failures = cluster.broker(1).metrics.collect()
        assert failures.name == FAILURES
        assert {sample.labels["source"]: sample.value for sample in failures.samples if sample.value} == {}
