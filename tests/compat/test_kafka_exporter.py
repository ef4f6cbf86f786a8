"""Our brokers tell by themselves what kafka_exporter tells of a cluster from outside: every series, by the same name
and labels and with the same value, each by one broker. What differs on purpose stands in DIFFERENCES."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from compat.exporter_site import kill, staged
from compat.kafka_exporter import Facts, Series, facts_of, golden_path, scraped, series_named, series_of
from compat.metrics_site import PATIENCE_S
from strandline.cli.cluster import EmbeddedCluster

Told = dict[Series, float]


class Difference(NamedTuple):
    """A series of which the exporter tells `theirs` and we one of `ours`; None: it is not told."""

    series: Series
    theirs: float | None
    ours: tuple[float | None, ...]
    reason: str


NOBODY_LEADS = "the exporter leaves it out; here it is to be seen that nobody leads"
DOWN = "who looks for what lacks replicas finds what has none that lives, too"
COMMITTED = "the exporter asks groups only about partitions that have a leader; what is committed is known all the same"
LAST_END = "it is as far behind as when the leader went, until that is a minute ago"

ALONE = {"topic": "alone", "partition": 1}
GONE = {"consumergroup": "gone", "topic": "alone"}
DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "at-rest": (),
    "killed": (
        Difference(series_named("topic_partition_leader", **ALONE), None, (-1,), NOBODY_LEADS),
        Difference(series_named("topic_partition_under_replicated_partition", **ALONE), 0, (1,), DOWN),
        Difference(series_named("consumergroup_current_offset", **GONE, partition=0), None, (-1,), COMMITTED),
        Difference(series_named("consumergroup_current_offset", **GONE, partition=1), None, (6,), COMMITTED),
        Difference(series_named("consumergroup_current_offset_sum", **GONE), None, (5,), COMMITTED),
        Difference(series_named("consumergroup_lag", **GONE, partition=0), None, (-1,), COMMITTED),
        Difference(series_named("consumergroup_lag", **GONE, partition=1), None, (4, None), LAST_END),
        Difference(series_named("consumergroup_lag_sum", **GONE), None, (4, None), LAST_END),
    ),
}
"""By phase."""


def golden(phase: str) -> tuple[Facts, Told]:
    recorded = json.loads(golden_path(phase).read_text())
    told = {Series(name, tuple(sorted(labels.items()))): value for name, labels, value in recorded["series"]}
    return recorded["facts"], told


@pytest.mark.parametrize("phase", DIFFERENCES)
def test_the_rules_are_those_of_a_real_exporter(phase: str) -> None:
    facts, told = golden(phase)
    assert series_of(facts) == told


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with staged(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def unlike(theirs: Told, ours: Told, phase: str) -> list[str]:
    """What differs though it should not, and what does not differ though it should, a line each."""
    allowed = {each.series: each for each in DIFFERENCES[phase]}
    return [
        f"{series}: theirs {theirs.get(series)}, ours {ours.get(series)}, allowed: {allowed.get(series)}"
        for series in sorted(theirs.keys() | ours.keys() | allowed.keys())
        if not (
            theirs.get(series) == allowed[series].theirs and ours.get(series) in allowed[series].ours
            if series in allowed
            else theirs.get(series) == ours.get(series)
        )
    ]


def compare(cluster: EmbeddedCluster, phase: str) -> None:
    """Leaders, ends and groups are told a moment after they are there."""
    living = [each for each in cluster.broker_ids if cluster.brokers[each].is_alive]
    targets = [str(cluster.admin_address(each)) for each in living]
    bootstrap = ",".join(str(cluster.address(each)) for each in living)

    def differences() -> list[str]:
        """After a broker has died it is still listed for a moment, who coordinates its groups reads them, and what it
        told is told by nobody or by two: neither side need have an answer at once."""
        try:
            return unlike(series_of(facts_of(bootstrap)), scraped(targets), phase)
        except (AssertionError, OSError) as failure:  # as ClientFailed
            return [str(failure)]

    deadline = time.monotonic() + PATIENCE_S
    while lines := differences():
        assert time.monotonic() < deadline, "\n".join(["", *lines])
        time.sleep(0.2)


def test_every_series_of_a_cluster_at_rest_is_the_exporters(cluster: EmbeddedCluster) -> None:
    compare(cluster, "at-rest")


def test_every_series_after_a_broker_was_killed_is_the_exporters(cluster: EmbeddedCluster) -> None:
    kill(cluster)
    compare(cluster, "killed")
