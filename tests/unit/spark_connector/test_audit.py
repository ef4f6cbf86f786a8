"""An audit's page, and what crosses between its driver and the tasks of Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from strandline.client.replicas import looking
from strandline.client.replicas.audit import AuditOptions, AuditSummary, audited, joined
from strandline.client.replicas.comparison import Finding
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.pipelines.audit_page import MOST_PARTITIONS_DRAWN, MOST_ROWS, audit_page
from strandline.spark_connector.pipelines.audit_task import bundled, decoded, encoded
from strandline.spark_connector.pipelines.pictures import broker_colour
from support.audited_cluster import T0, MemoryAdmin, audited_cluster, damage


def run(admin: MemoryAdmin) -> AuditSummary:
    return audited(admin, AuditOptions(), admin.run)


def found(summary: AuditSummary) -> int:
    return sum(len(replica.findings) for partition in summary.partitions for replica in partition.replicas)


def test_small_partitions_share_a_task_and_large_ones_do_not() -> None:
    whole = looking.OFFSETS_PER_WORK
    assert bundled([], 8) == []
    assert bundled([10, 10, whole, 10], 1) == [[0, 1], [2], [3]]
    assert bundled([50_000] * 5, 8) == [[0], [1], [2], [3], [4]]
    assert [len(each) for each in bundled([0] * 250, 1)] == [100, 100, 50]
    assert [len(each) for each in bundled([0] * 250, 10)] == [25] * 10


def test_what_a_task_found_crosses_as_text() -> None:
    admin = audited_cluster(T0)
    damage(admin, 2)
    works, _ = looking.plan(admin, admin.describe_topics().values(), set())
    [(_, results)] = admin.run(works)
    assert {broker: decoded(encoded(each)) for broker, each in results.items()} == results
    assert json.loads(encoded(results[2]))["findings"][0]["kind"] == "damaged"
    assert joined(results[2].findings * 2) == tuple(results[2].findings)


@pytest.mark.parametrize("spoil", [lambda admin: None, lambda admin: damage(admin, 2)])
def test_the_page_shows_each_replica_and_what_was_found(spoil: Callable[[MemoryAdmin], None]) -> None:
    admin = audited_cluster(T0, TopicPartition("<b>", 0), offline={3})
    spoil(admin)
    text = audit_page(run(admin), cluster="there:1")
    assert "&lt;b&gt;-0" in text and "<b>-0" not in text
    assert "not equal" in text and "broker 3 is not running" in text
    assert ("damaged [4, 5): its bytes do not have the CRC-32C" in text) == (found(run(admin)) > 2)
    whole = audit_page(run(audited_cluster(T0)), cluster="there:1")
    assert "all equal" in whole and "What differs" not in whole
    assert all(f'background:{broker_colour(number)}"></i>broker {number}<' in whole for number in (1, 2, 3))
    assert "nothing to show" in audit_page(run(MemoryAdmin({})), cluster="there:1")


def test_a_page_of_very_many_findings_stays_readable() -> None:
    findings = tuple(Finding("missing", offset, offset + 1, 1, "gone") for offset in range(0, 60_000, 2))
    summary = run(audited_cluster(T0))
    [partition] = summary.partitions
    broken = tuple(replace(replica, state="different", findings=findings) for replica in partition.replicas)
    spoiled = replace(summary, partitions=(replace(partition, state="different", replicas=broken),))
    text = audit_page(spoiled, cluster="there:1")
    assert "The first 2000 of 90000." in text and len(text) < 2_000_000


def test_what_differs_is_drawn_and_listed_before_what_is_only_offline() -> None:
    """With a broker down, in a cluster of thousands of partitions, it would be left out."""
    partitions = [TopicPartition("t", number) for number in range(MOST_PARTITIONS_DRAWN + 1)]
    admin = audited_cluster(*partitions, offline={3})
    damage(admin, 2, partitions[-1])
    text = audit_page(run(admin), cluster="there:1")
    assert "The first 50 of 51 partitions." in text
    drawn, listed = (f"<h2>t-{MOST_PARTITIONS_DRAWN}</h2>", "<td>damaged</td>")
    assert text.index(drawn) < text.index("<h2>t-0</h2>") and text.index(listed) < text.index("<td>offline</td>")


def test_a_grid_of_very_many_topics_begins_with_those_that_differ() -> None:
    partitions = [TopicPartition(f"topic-{number}", 0) for number in range(MOST_ROWS + 1)]
    admin = audited_cluster(*partitions)
    damage(admin, 2, TopicPartition("topic-7", 0))
    text = audit_page(run(admin), cluster="there:1")
    assert re.findall("<tr><th>(topic-.*?)</th>", text)[:3] == ["topic-7", "topic-0", "topic-1"]


def test_the_page_says_which_topics_were_left_out() -> None:
    summary = run(audited_cluster(T0, TopicPartition("__offsets", 0), internal={"__offsets"}))
    assert "Left out, being internal: __offsets." in audit_page(summary, cluster="there:1")


def test_the_page_says_of_what_only_one_look_found_that_it_is_not_confirmed() -> None:
    admin = audited_cluster(T0)
    damage(admin, 2)
    [partition] = run(admin).partitions
    replicas = tuple(
        replace(each, findings=tuple(replace(finding, is_confirmed=False) for finding in each.findings))
        for each in partition.replicas
    )
    doubtful = replace(run(admin), partitions=(replace(partition, replicas=replicas),))
    assert "not confirmed" in audit_page(doubtful, cluster="there:1")
