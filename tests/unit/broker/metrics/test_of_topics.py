"""What is told of topics, while others look, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.core import Metric

from strandline.broker.metrics.of_topics import OfTopics
from strandline.broker.replication.topic_counts import TopicTraffic


def reader(traffic: TopicTraffic, topics: Iterable[str]) -> Iterator[Metric]:
    """Whoever scrapes, while the broker has replicas of these."""
    replicas = SimpleNamespace(partitions={(topic, 0): None for topic in topics}, traffic=traffic)
    return OfTopics(cast(Any, replicas), cast(Any, None), lambda: (), lambda: False)()


def messages_in(metrics: Iterator[Metric]) -> dict[str, float]:
    """By topic; of all is "". Until the next family begins."""
    found = {}
    for metric in metrics:
        if metric.name != "kafka_server_brokertopicmetrics_messagesin":
            break
        found.update({sample.labels.get("topic", ""): sample.value for sample in metric.samples})
    return found


def test_a_topic_that_goes_while_it_is_told_has_no_series_from_then_on() -> None:
    traffic = TopicTraffic()
    for topic, count in (("older", 1000), ("here", 1), ("going", 2)):
        traffic.enter(topic).messages_in = count
    traffic.keep(["here", "going"])
    first = reader(traffic, ["here", "going"])
    assert {sample.value for sample in next(first).samples} == {1003}
    assert messages_in(reader(traffic, ["here"])) == {"": 1003, "here": 1}
    assert messages_in(first) == {"here": 1}, "and not the sums of all that are gone"
