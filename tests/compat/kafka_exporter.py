"""What kafka_exporter tells, from what a cluster tells to sarama, the client that it is made with.

The exporter itself cannot be had from Go's module proxy, so it is not run here. `series_of` says by which rules it
tells what; golden/kafka-exporter-*.json have what a real one (1.9.0) told about a cluster of ours, beside what sarama
was told at the same time, and hold the rules to that.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from compat.other_clients import INSTALLED, run

SARAMA = INSTALLED / "sarama"
FAMILIES = ("kafka_broker", "kafka_topic_", "kafka_consumergroup_")
"""How the names of the exporter's figures begin, and no others of ours."""
NOTHING = -1
"""What is committed where nothing is, and the lag there."""

Facts = Mapping[str, Any]
"""What clients/sarama/main.go prints: `brokers`, `partitions`, `groups`."""


class Series(NamedTuple):
    """`labels`: (name, value) of each, sorted."""

    name: str
    labels: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.name}{{{', '.join(f'{name}={value}' for name, value in self.labels)}}}"


def facts_of(bootstrap: str) -> Facts:
    """What sarama is told now. ClientFailed: something could not be asked or answered."""
    facts: Facts = json.loads(run([str(SARAMA), bootstrap]))
    return facts


def series_of(facts: Facts) -> dict[Series, float]:
    """What the exporter would tell."""
    told = dict(_of_brokers(facts["brokers"]))
    told.update(_of_partitions(facts["partitions"]))
    ends = {(each["topic"], each["partition"]): each["newest"] for each in facts["partitions"]}
    for name, group in facts["groups"].items():
        told[series_named("consumergroup_members", consumergroup=name)] = group["members"]
        for topic, offsets in group["committed"].items():
            # It asks a group only about partitions whose end it has found.
            numbered = {int(number): offset for number, offset in offsets.items()}
            committed = {number: offset for number, offset in numbered.items() if ends[topic, number] is not None}
            if any(offset != NOTHING for offset in committed.values()):
                told.update(_of_place(name, topic, committed, ends))
    return told


def _of_brokers(brokers: Mapping[str, str]) -> Iterator[tuple[Series, float]]:
    yield series_named("brokers"), len(brokers)
    for broker_id, address in brokers.items():
        yield series_named("broker_info", id=broker_id, address=address), 1


def _of_partitions(partitions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Series, float]]:
    """What a partition without a leader does not have has no series: leader and both offsets."""
    for topic, count in Counter(each["topic"] for each in partitions).items():
        yield series_named("topic_partitions", topic=topic), count
    for each in partitions:
        replicas, in_sync, leader = each["replicas"], each["in_sync"], each["leader"]
        figures = {
            "leader": leader,
            "current_offset": each["newest"],
            "oldest_offset": each["oldest"],
            "replicas": len(replicas),
            "in_sync_replica": len(in_sync),
            "leader_is_preferred": int(leader == replicas[0]),
            "under_replicated_partition": int(len(in_sync) < len(replicas)),
        }
        for name, value in figures.items():
            if value is not None:
                yield series_named(f"topic_partition_{name}", topic=each["topic"], partition=each["partition"]), value


def _of_place(
    group: str, topic: str, committed: Mapping[int, int], ends: Mapping[tuple[str, int], int]
) -> Iterator[tuple[Series, float]]:
    """A group in a topic of which it has committed something: all partitions, also those that have nothing. Their -1
    counts in the sum of offsets, and not in that of lags."""
    lags: dict[int, int] = {}
    for number, offset in committed.items():
        labels = {"consumergroup": group, "topic": topic, "partition": number}
        yield series_named("consumergroup_current_offset", **labels), offset
        if offset != NOTHING:
            lags[number] = ends[topic, number] - offset
        yield series_named("consumergroup_lag", **labels), lags.get(number, NOTHING)
    labels = {"consumergroup": group, "topic": topic}
    yield series_named("consumergroup_current_offset_sum", **labels), sum(committed.values())
    yield series_named("consumergroup_lag_sum", **labels), sum(lags.values())


def series_named(name: str, **labels: object) -> Series:
    """Without `kafka_`, which all begin with."""
    return Series(f"kafka_{name}", tuple(sorted((key, str(value)) for key, value in labels.items())))


def series_in(text: str) -> dict[Series, float]:
    """What a page of metrics tells by the exporter's names. Nothing else of it, as what a Go process tells of itself.
    AssertionError: a series stands there twice."""
    told: dict[Series, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name.startswith(FAMILIES) else ():
            series = Series(sample.name, tuple(sorted(sample.labels.items())))
            assert series not in told, f"twice: {series}"
            told[series] = sample.value
    return told


def scraped(targets: Iterable[str]) -> dict[Series, float]:
    """What these brokers (host:port of their admin ports) tell together. AssertionError: a series is told by several of
    them."""
    pages = []
    for target in targets:
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
            pages.append(series_in(answer.read().decode()))
    twice = [str(series) for series, count in Counter(series for page in pages for series in page).items() if count > 1]
    assert not twice, f"told by several brokers: {twice}"
    return {series: value for page in pages for series, value in page.items()}


def golden_path(phase: str) -> Path:
    return Path(__file__).with_name("golden") / f"kafka-exporter-{phase}.json"
