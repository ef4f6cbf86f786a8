"""Clients make as many groups as they like, by any name: what is told is bounded, and what is not is counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from strandline.broker.admin import admin_port, http_server
from strandline.broker.groups.counts import GroupCounts
from strandline.broker.groups.effects import GroupSettings
from strandline.broker.groups.group import Group
from strandline.broker.groups.offsets import GroupOffsets
from strandline.broker.groups.shards import Coordinated
from strandline.broker.metrics.bounds import MAX_LABEL_CHARACTERS, MAX_SERIES
from strandline.broker.metrics.families import SLICE_SAMPLES, LeftOut
from strandline.broker.metrics.of_groups import SHARED_FOR_S, OfGroups
from strandline.protocol.group_records import CommittedOffset
from strandline.protocol.types import TopicPartition

SETTINGS = GroupSettings(max_size=10, initial_delay_s=0)
TOO_LONG = "x" * (MAX_LABEL_CHARACTERS + 1)
OF_OFFSETS = ("current_offset", "lag", "current_offset_sum", "lag_sum")


def group(name: str, partitions: int = 0, topic: str = "t") -> Coordinated:
    committed = {topic: {index: CommittedOffset(3, -1, "", 0) for index in range(partitions)}} if partitions else {}
    offsets = GroupOffsets(name, committed)
    return Coordinated(cast(Any, None), Group(name, SETTINGS), offsets, lambda *_: 0.0, 0)


class Ends:
    """How often it was asked; partition 7 of any topic is not known."""

    def __init__(self) -> None:
        self.asked = 0
        self.end: Any = 10

    def of(self, topic_partition: TopicPartition) -> int | None:
        self.asked += 1
        return None if topic_partition.partition == 7 else self.end


class Site:
    def __init__(self, *groups: Coordinated, partitions: int = 0, is_per_partition: bool = True) -> None:
        """partitions: that each topic has, as far as this broker knows of it."""
        shard = SimpleNamespace(groups={each.group.group_id: each for each in groups})
        coordinator = SimpleNamespace(shards={0: shard}, counts=GroupCounts())
        self.ends = Ends()
        ends = cast(Any, self.ends)
        self.source = OfGroups(cast(Any, coordinator), ends, lambda _: partitions, lambda: is_per_partition)

    def families(self) -> list[Metric]:
        return list(self.source())


def left_out(families: list[Metric]) -> dict[str, int]:
    return {family.name: family.rows for family in families if isinstance(family, LeftOut)}


def count(families: list[Metric], name: str) -> int:
    return sum(len(family.samples) for family in families if family.name == name)


async def test_groups_beyond_the_bound_are_counted_in_sum() -> None:
    site = Site(*(group(f"g{number}", 1) for number in range(MAX_SERIES + 5)))
    families = site.families()
    assert count(families, "kafka_consumergroup_members") == MAX_SERIES
    assert left_out(families) == {f"kafka_consumergroup_{name}": 5 for name in ("members", *OF_OFFSETS)}
    [groups] = [f.samples[0].value for f in families if f.name.endswith("_numgroups")]
    assert groups == MAX_SERIES + 5


@pytest.mark.parametrize(("name", "topic", "members"), [(TOO_LONG, "t", 1), ("g", TOO_LONG, 0)])
async def test_each_family_that_lacks_a_group_or_topic_says_so(name: str, topic: str, members: int) -> None:
    families = Site(group(name, 2, topic), group("next", 1), partitions=3).families()
    missing = {name.removeprefix("kafka_consumergroup_"): rows for name, rows in left_out(families).items()}
    assert missing == {"members": members, "current_offset_sum": 1, "lag_sum": 1, "current_offset": 3, "lag": 3}


@pytest.mark.parametrize("is_per_partition", [True, False])
async def test_sums_are_of_all_partitions_however_few_are_told(is_per_partition: bool) -> None:
    """Alerts rest on them."""
    large, partitions = group("large", MAX_SERIES + 30), MAX_SERIES + 30
    families = Site(large, group("next", 12), is_per_partition=is_per_partition).families()
    for name in ("current_offset", "lag"):
        told = of_group(families, name)
        assert len(told) == ((MAX_SERIES - (name == "lag")) if is_per_partition else 0)
        assert left_out(families).get(f"kafka_consumergroup_{name}") == (42 if is_per_partition else None)
    assert of_group(families, "current_offset_sum") == [("t", partitions * 3), ("t", 12 * 3)]
    assert of_group(families, "lag_sum") == [("t", (partitions - 1) * 7), ("t", 11 * 7)]
    assert left_out(families)["kafka_consumergroup_lag_sum"] == 0


@pytest.mark.parametrize("is_per_partition", [True, False])
async def test_each_group_has_its_sum_whatever_it_has_not_committed(is_per_partition: bool) -> None:
    """What is committed is told before that nothing is."""
    groups = [group(f"g{number}", 1) for number in range(900)]
    families = Site(*groups, partitions=20, is_per_partition=is_per_partition).families()
    for name, figure in (("current_offset", 3 - 19), ("lag", 7)):
        assert of_group(families, f"{name}_sum") == [("t", figure)] * 900
        told = [figure for _, figure in of_group(families, name) if figure >= 0]
        assert len(told) == (900 if is_per_partition else 0)
        assert left_out(families).get(f"kafka_consumergroup_{name}") == (8000 if is_per_partition else None)


async def test_a_group_with_very_many_topics_takes_nobody_s_place() -> None:
    wide = group("wide")
    wide.offsets.committed.update({f"t{n}": {0: CommittedOffset(3, -1, "", 0)} for n in range(MAX_SERIES)})
    families = Site(wide, *(group(f"g{number}", 1) for number in range(12)), partitions=2).families()
    for name in ("current_offset_sum", "lag_sum", "current_offset", "lag"):
        samples = [s for f in families for s in f.samples if f.name == f"kafka_consumergroup_{name}"]
        assert {s.labels["consumergroup"] for s in samples} == {"wide", *(f"g{number}" for number in range(12))}
    missing = {name.removeprefix("kafka_consumergroup_"): rows for name, rows in left_out(families).items() if rows}
    partitions = MAX_SERIES + 24
    assert missing == {"current_offset_sum": 12, "lag_sum": 12, "current_offset": partitions, "lag": partitions}


async def test_between_two_pieces_little_is_looked_at() -> None:
    site = Site(*(group(f"g{number}", 100) for number in range(50)))
    asked = most = 0
    for _ in site.source():
        most = max(most, site.ends.asked - asked)
        asked = site.ends.asked
    assert asked == 5000 and most <= SLICE_SAMPLES


async def test_partitions_without_a_commit_are_looked_at_in_pieces_too() -> None:
    turns = [family for family in Site(group("g", 1), partitions=5000).families() if not family.samples]
    assert len(turns) > 5000 / SLICE_SAMPLES


def of_group(families: list[Metric], name: str) -> list[tuple[str, float]]:
    samples = [s for family in families for s in family.samples if s.name == f"kafka_consumergroup_{name}"]
    return [(s.labels.get("partition", s.labels["topic"]), s.value) for s in samples]


async def test_a_lag_that_is_not_known_is_left_out_and_its_sum_is_that_of_the_others() -> None:
    families = Site(group("g", 8, "a"), group("h", 7, "b")).families()
    assert count(families, "kafka_consumergroup_lag") == 14
    assert of_group(families, "lag_sum") == [("a", 49), ("b", 49)]


async def test_where_no_end_is_known_there_is_no_sum_of_lags() -> None:
    unknown = group("g", 8)
    for index in range(7):
        del unknown.offsets.committed["t"][index]
    assert of_group(Site(unknown).families(), "lag_sum") == []


async def test_a_partition_without_a_commit_is_told_as_such_where_its_topic_has_one() -> None:
    """As kafka_exporter does: its lag is -1, which is no part of the sum, and so is its offset, which is."""
    site = Site(group("g", 2), group("idle"), partitions=4)
    families = site.families()
    assert of_group(families, "current_offset") == [("0", 3), ("1", 3), ("2", -1), ("3", -1)]
    assert of_group(families, "lag") == [("0", 7), ("1", 7), ("2", -1), ("3", -1)]
    assert of_group(families, "current_offset_sum") == [("t", 4)]
    assert of_group(families, "lag_sum") == [("t", 14)]
    assert site.ends.asked == 2, "nobody needs to know where the others end"


async def test_partitions_without_a_commit_are_bounded_too() -> None:
    site = Site(group("large", 1), partitions=MAX_SERIES + 5)
    families = site.families()
    assert count(families, "kafka_consumergroup_current_offset") == MAX_SERIES
    assert left_out(families)["kafka_consumergroup_current_offset"] == 5


async def test_without_series_of_partitions_the_sums_are_told() -> None:
    families = Site(group("g", 5), is_per_partition=False).families()
    assert count(families, "kafka_consumergroup_current_offset") == count(families, "kafka_consumergroup_lag") == 0
    assert [f.samples[0].value for f in families if f.samples and f.name.endswith("_sum")] == [15, 35]


async def test_names_that_cannot_be_told_are_left_out_and_any_other_is_escaped() -> None:
    odd = 'a"b\\c\nd{e="f"}'
    site = Site(group(odd, 1), group("\ud800", 1), group(TOO_LONG, 1))
    families = site.families()
    assert left_out(families)["kafka_consumergroup_members"] == 2
    for family in families:
        text = generate_latest(cast(Any, SimpleNamespace(collect=lambda family=family: [family]))).decode()
        for parsed in text_string_to_metric_families(text):
            assert all(sample.labels.get("consumergroup", odd) == odd for sample in parsed.samples)


# --- scrapes at the same time --------------------------------------------------------------------------------------


def begun(site: Site) -> Iterator[Metric]:
    """A scrape of which its reader has taken so much that most is kept for it: the first offset is told."""
    scrape = iter(site.source())
    while not (family := next(scrape)).samples or family.name != "kafka_consumergroup_current_offset":
        pass
    return scrape


async def test_scrapes_that_nobody_reads_keep_one_look_at_the_groups_and_a_slice_each(
    autojump_clock: MockClock,
) -> None:
    """All of one moment: on a busy machine they would have several looks among them."""
    site = Site(*(group(f"g{number}", 1) for number in range(MAX_SERIES)))
    tracemalloc.start()
    try:
        unread = [begun(site)]
        of_one, _ = tracemalloc.get_traced_memory()
        unread += [begun(site) for _ in range(admin_port.MAX_CONNECTIONS - 1)]
        of_all, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert of_all - of_one < len(unread) * SLICE_SAMPLES * 1000
    assert of_one < 8 * 2**20


async def test_few_looks_are_kept_however_often_somebody_begins_to_read(autojump_clock: MockClock) -> None:
    site = Site(group("g", 1))
    unread = []
    for _ in range(int(http_server.REQUEST_S)):  # then the first of them is sent away
        unread.append(begun(site))
        await trio.sleep(1)
    assert site.ends.asked == http_server.REQUEST_S / SHARED_FOR_S


async def test_who_scrapes_alone_has_what_is_so_now() -> None:
    site = Site(group("g", 1))
    assert of_group(site.families(), "lag_sum") == [("t", 7)]
    site.ends.end = 20
    assert of_group(site.families(), "lag_sum") == [("t", 17)]


async def test_a_look_that_one_scrape_began_another_ends() -> None:
    site = Site(*(group(f"g{number}", 1) for number in range(1000)))
    slow = iter(site.source())
    while not site.ends.asked:
        next(slow)
    assert site.ends.asked < 1000
    quick = of_group(site.families(), "lag")
    assert (len(quick), site.ends.asked) == (1000, 1000)
    assert of_group(list(slow), "lag") == quick
    assert site.ends.asked == 1000


async def test_a_look_that_failed_is_taken_for_no_whole_one_and_is_not_shared_any_more() -> None:
    site = Site(*(group(f"g{number}", 1) for number in range(1000)))
    scrapes = [iter(site.source()) for _ in range(2)]
    for scrape in scrapes:
        while not (family := next(scrape)).name.endswith("_numoffsets"):
            assert family.samples
    site.ends.end = "a bug"
    for scrape, error in zip(scrapes, (TypeError, RuntimeError), strict=True):
        with pytest.raises(error):
            list(scrape)
    site.ends.end = 10
    assert len(of_group(site.families(), "lag")) == 1000
