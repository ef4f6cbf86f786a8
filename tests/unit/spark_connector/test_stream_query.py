"""A stream on the driver, over a cluster in memory: where batches begin and end, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.spark_connector.errors import (
    InvalidOption,
    PartitionsDeleted,
    SourceError,
    StartOffsetReset,
    UnknownTopic,
    UnreadableOffset,
)
from strandline.spark_connector.options.stream_options import TriggerLimits, parse_stream_options
from strandline.spark_connector.streaming.limits import shared, taken
from strandline.spark_connector.streaming.offsets import StreamOffset, from_json, to_json
from strandline.spark_connector.streaming.query import StreamQuery
from support.memory_source import T0, MemoryCluster
from support.stream_queries import NEW, T1, Offset, planned, positions, stored


class Watched:
    """A group that notes what was committed."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, int]] = []

    def commit(self, positions: Any) -> None:
        self.commits.append(dict(positions))


def test_a_batch_that_is_repeated_is_divided_into_the_same_tasks_whoever_leads_now(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    cluster.add(TopicPartition("t", 2), 0, [b"x"] * 10)
    cluster.add(T0, 10, [b"y"] * 10)
    query = new_query(startingOffsets="earliest", minPartitions="5")
    first = query.initial()
    end = query.latest(stored(first), is_limited=False)
    tasks = []
    for leaders in ((1, 1, 2), (3, 1, 1), (2, 2, 2)):
        cluster.leading = {TopicPartition("t", number): leader for number, leader in enumerate(leaders)}
        tasks.append(query.plan(stored(first), stored(end)))
    assert tasks[0] == tasks[1] == tasks[2]
    neighbours = zip(tasks[0], tasks[0][1:], strict=False)
    assert all(one.partition != other.partition for one, other in neighbours), "of one partition as far apart as can be"


def test_a_new_query_begins_at_the_latest_offset_however_often_it_is_asked(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    query = new_query()
    first = query.initial()
    cluster.add(T0, 10, [b"y"] * 5)
    assert query.initial() == first
    end = query.latest(first, is_limited=False)
    assert planned(query, first, end) == {0: (10, 15)}


def test_a_crash_before_the_first_batch_was_committed_skips_nothing(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    query = new_query()
    cluster.add(T0, 10, [b"y"])
    first = query.initial()
    cluster.add(T0, 11, [b"z"] * 4)
    end = query.latest(first, is_limited=False)  # Spark has written this down, and is killed
    cluster.add(T0, 15, [b"late"] * 3)
    again = new_query()
    assert planned(again, again.initial(), end) == {0: (11, 15)}
    later = again.latest(stored(end), is_limited=False)
    assert planned(again, end, later) == {0: (15, 18)}


def test_a_query_that_finds_nothing_at_first_writes_down_where_it_began(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    query = new_query()
    first = query.initial()
    end = query.latest(first, is_limited=False)
    assert end != first
    assert planned(query, first, end) == {}
    assert query.latest(stored(end), is_limited=False) == end, "no second empty batch"


def test_nothing_new_is_the_very_same_offset(new_query: Callable[..., StreamQuery]) -> None:
    query = new_query(startingOffsets="earliest")
    second = query.latest(query.initial(), is_limited=False)
    assert query.latest(stored(second), is_limited=False) == second
    assert json.dumps(query.latest(stored(second), is_limited=True)) == json.dumps(second)


def test_a_limit_is_shared_in_proportion_until_everything_is_read(new_query: Callable[..., StreamQuery]) -> None:
    query = new_query(startingOffsets="earliest", maxOffsetsPerTrigger="7")
    at, ends = query.initial(), []
    for _ in range(3):
        at = query.latest(stored(at), is_limited=True)
        ends.append(positions(at))
    assert ends == [{"0": 5, "1": 2}, {"0": 10, "1": 4}, {"0": 10, "1": 4}]


def test_spark_may_want_everything_in_one_batch_whatever_the_limit(new_query: Callable[..., StreamQuery]) -> None:
    query = new_query(startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert positions(query.latest(query.initial(), is_limited=False)) == {"0": 10, "1": 4}


def test_what_comes_after_the_pinned_end_is_for_the_next_run(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    query = new_query(startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    query.prepare_available_now()
    at = query.latest(query.initial(), is_limited=True)
    cluster.add(T0, 10, [b"late"] * 90)
    cluster.add(TopicPartition("t", 2), 0, [b"late"])
    seen = [positions(at)]
    for _ in range(3):
        at = query.latest(stored(at), is_limited=True)
        seen.append(positions(at))
    assert seen[-1] == seen[-2] == {"0": 10, "1": 4, "2": 0}


def test_a_batch_waits_for_enough_offsets_but_no_longer_than_the_delay(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    now = [1_000]
    query = new_query(now=lambda: now[0], startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    at = query.latest(query.initial(), is_limited=True)
    assert positions(at) == {"0": 10, "1": 4}, "nobody has waited yet"
    cluster.add(T0, 10, [b"y"] * 3)
    assert query.latest(stored(at), is_limited=True) == at
    now[0] += 10_000
    after_delay = query.latest(stored(at), is_limited=True)
    assert positions(after_delay) == {"0": 13, "1": 4}
    cluster.add(T1, 4, [b"y"] * 5)
    assert positions(query.latest(stored(after_delay), is_limited=True)) == {"0": 13, "1": 9}


def test_a_limit_in_bytes_goes_by_the_size_of_what_waits(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    cluster.add(T0, 10, [b"v" * 1000] * 990)
    query = new_query(startingOffsets=json.dumps({"t": {"0": 10, "1": 4}}), maxBytesPerTrigger="100000")
    end = query.latest(query.initial(), is_limited=True)
    taken_offsets = positions(end)["0"] - 10
    assert 80 <= taken_offsets <= 100, "a record takes some 1,010 bytes"


def test_a_partition_that_appears_is_read_from_its_beginning(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    query = new_query()
    at = query.latest(query.initial(), is_limited=False)
    cluster.add(TopicPartition("t", 2), 0, [b"new"] * 6)
    end = query.latest(stored(at), is_limited=False)
    assert planned(query, at, end) == {2: (0, 6)}


def test_a_checkpoint_of_sparks_kafka_source_is_read(new_query: Callable[..., StreamQuery]) -> None:
    query = new_query()
    end = query.latest({"t": {"0": 3, "1": 4}}, is_limited=False)
    assert planned(query, {"t": {"0": 3, "1": 4}}, end) == {0: (3, 10)}
    assert query.latest(stored(end), is_limited=False) == end


def test_a_spark_that_does_not_tell_the_start_is_served_without_limits(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    query = new_query(startingOffsets="earliest")
    end = query.latest(None, is_limited=False)
    assert planned(query, query.initial(), end) == {0: (0, 10), 1: (0, 4)}
    cluster.add(T1, 4, [b"y"])
    later = query.latest(None, is_limited=False)
    assert planned(query, end, later) == {1: (4, 5)}
    with pytest.raises(InvalidOption, match=r"Spark 4\.2"):
        new_query(maxOffsetsPerTrigger="5").latest(None, is_limited=False)


def test_a_group_is_told_how_far_the_query_is_also_after_its_last_batch(
    new_query: Callable[..., StreamQuery],
) -> None:
    group = Watched()
    query = new_query(group, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    first = query.initial()
    at = query.latest(first, is_limited=True)
    assert group.commits == [], "nothing is read yet"
    end = query.latest(stored(at), is_limited=True)
    query.completed(stored(at))
    query.latest(stored(end), is_limited=True)
    assert group.commits[0] == group.commits[1] == {T0: 5, T1: 2}
    assert group.commits[-1] == {T0: 10, T1: 4}


def test_lag_is_reported_against_everything_that_there_is(new_query: Callable[..., StreamQuery]) -> None:
    query = new_query(startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert query.newest() is None
    query.latest(query.initial(), is_limited=True)
    newest = query.newest()
    assert newest is not None
    assert positions(newest) == {"0": 10, "1": 4}


def first_batch(query: StreamQuery) -> Offset:
    return query.latest(stored(query.initial()), is_limited=False)


def test_where_a_stream_begins_must_exist(new_query: Callable[..., StreamQuery], cluster: MemoryCluster) -> None:
    with pytest.raises(StartOffsetReset, match=r"11 for t-0, which holds \[0, 10\)") as beyond:
        first_batch(new_query(startingOffsets=json.dumps({"t": {"0": 11, "1": 0}})))
    assert "aged out" not in str(beyond.value) and "Name a start that the partition has" in str(beyond.value)
    lenient = new_query(startingOffsets=json.dumps({"t": {"0": 11, "1": -2}}), failOnDataLoss="false")
    assert positions(lenient.initial()) == {"0": 10, "1": 0}
    cluster.log_start[T1] = 2
    with pytest.raises(StartOffsetReset, match=r"1 for t-1, which holds .*aged out"):
        first_batch(new_query(startingOffsets=json.dumps({"t": {"0": 10, "1": 1}})))
    cluster.batches.clear()
    with pytest.raises(UnknownTopic):
        first_batch(new_query())


def grown(cluster: MemoryCluster) -> None:
    cluster.add(TopicPartition("t", 2), 0, [b"y"])


def aged(cluster: MemoryCluster) -> None:
    cluster.add(T1, 4, [b"y"])
    cluster.log_start[T1] = 5


@pytest.mark.parametrize("change", [grown, aged])
def test_a_query_killed_in_its_first_batch_does_not_need_its_starting_options_again(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, change: Callable[[MemoryCluster], None]
) -> None:
    start = json.dumps({"t": {"0": 1, "1": 4}})
    end = first_batch(new_query(startingOffsets=start))
    change(cluster)
    again = new_query(startingOffsets=start)
    assert planned(again, again.initial(), end) == {0: (1, 10)}
    with pytest.raises(SourceError):
        first_batch(new_query(startingOffsets=start))
    with pytest.raises(SourceError):  # Spark's Kafka source keeps the beginning elsewhere
        planned(again, again.initial(), {"t": {"0": 10, "1": 4}})


def test_a_stream_begins_with_the_last_offsets_or_at_a_time_ago_counted_once(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    assert positions(new_query(startingOffsets="-5").initial()) == {"0": 5, "1": 0}
    assert positions(new_query(startingOffsets='{"t":{"0":3},"default":-1}').initial()) == {"0": 3, "1": 4}
    asked: list[dict[TopicPartition, int]] = []

    def offsets_at(timestamps_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        asked.append(timestamps_ms)
        return {T0: 7, T1: 2}

    cluster.offsets_at = offsets_at
    now = iter(range(60_000, 70_000, 1000))
    query = new_query(now=lambda: next(now), startingTimestamp="-1m")
    first = query.initial()
    assert query.initial() == first
    assert positions(first) == {"0": 7, "1": 2}
    assert asked == [{T0: 0, T1: 0}]
    end = query.latest(stored(first), is_limited=False)
    again = new_query(now=lambda: next(now), startingTimestamp="-1m")
    cluster.offsets_at = lambda timestamps_ms: {T0: 9, T1: 4}
    assert planned(again, again.initial(), end) == {0: (7, 10), 1: (2, 4)}, "the first batch carries its beginning"


def test_a_topic_made_anew_while_the_start_is_looked_up_is_not_taken_for_the_old_one(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = cluster.held

    def held_and_then_made_anew(partitions: list[TopicPartition]) -> Any:
        found = held(partitions)
        cluster.topic_ids["t"] = NEW
        return found

    monkeypatch.setattr(cluster, "held", held_and_then_made_anew)
    query = new_query()
    first = query.initial()
    with pytest.raises(PartitionsDeleted, match="created anew"):
        query.latest(stored(first), is_limited=False)


def test_a_new_partition_does_not_end_the_wait_for_enough_offsets(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    now = [1_000]
    query = new_query(now=lambda: now[0], startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    at = query.latest(query.initial(), is_limited=True)
    now[0] += 9_000
    grown(cluster)
    assert query.latest(stored(at), is_limited=True) == at
    now[0] += 1_000
    assert positions(query.latest(stored(at), is_limited=True)) == {"0": 10, "1": 4, "2": 1}


def test_a_topic_id_that_the_cluster_does_not_tell_for_a_while_is_kept(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    at = first_batch(new_query(startingOffsets="earliest"))
    cluster.topic_ids.clear()
    again = new_query()
    assert again.latest(stored(at), is_limited=False) == at
    cluster.add(T0, 10, [b"y"])
    later = again.latest(stored(at), is_limited=False)
    cluster.topic_ids["t"] = NEW
    with pytest.raises(PartitionsDeleted, match="created anew"):
        again.latest(stored(later), is_limited=False)


def test_a_damaged_batch_is_left_to_the_task_that_reads_it(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    damaged = bytearray(cluster.batches[T0][0])
    damaged[16] = 9  # no such format of batches
    cluster.batches[T0][0] = bytes(damaged)
    query = new_query(startingOffsets="earliest", maxBytesPerTrigger="100000")
    assert positions(query.latest(query.initial(), is_limited=True)) == {"0": 10, "1": 4}


@pytest.mark.parametrize(
    "found", [{"t": 3}, {"t": {"x": 1}}, {"t": {"0": -1}}, {"t": {"0": "1"}}, {"#ids": {"t": "?"}}]
)
def test_a_foreign_offset_is_refused_in_one_line(found: Any) -> None:
    with pytest.raises(UnreadableOffset, match="checkpoint"):
        from_json(found)


partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d_e"]), st.integers(0, 12))
counts = st.dictionaries(partitions, st.integers(0, 2**62), max_size=8)


@given(
    counts, st.dictionaries(st.sampled_from(["a", "b.c"]), st.binary(min_size=16, max_size=16)), counts, st.booleans()
)
def test_offsets_survive_a_checkpoint(positions: Any, ids: Any, initial: Any, is_new: bool) -> None:
    offset = StreamOffset(positions, {k: v for k, v in ids.items() if v != NO_TOPIC_ID}, initial or None, is_new)
    assert from_json(stored(to_json(offset))) == offset
    assert json.dumps(to_json(offset)) == json.dumps(to_json(from_json(stored(to_json(offset)))))


@given(counts, st.integers(1, 2**62))
def test_a_share_starves_nobody_and_keeps_the_limit(sizes: Any, limit: int) -> None:
    result = shared(sizes, limit)
    assert all(0 <= result[each] <= size for each, size in sizes.items())
    assert all(result[each] > 0 for each, size in sizes.items() if size)
    assert sum(result.values()) <= limit + len(sizes)


@given(counts, st.integers(1, 2**40), st.integers(1, 2**40), st.floats(0.5, 1e6))
def test_both_limits_hold_and_progress_is_made(sizes: Any, offsets: int, size_bytes: int, each_bytes: float) -> None:
    per_offset = dict.fromkeys(sizes, each_bytes)
    result = taken(TriggerLimits(max_offsets=offsets, max_bytes=size_bytes), sizes, per_offset)
    assert all(0 <= result[each] <= size for each, size in sizes.items())
    assert all(result[each] > 0 for each, size in sizes.items() if size)
    assert sum(result.values()) <= offsets + len(sizes)
    assert sum(result.values()) * each_bytes <= size_bytes * 1.001 + len(sizes) * (each_bytes + 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingTimestamp": "1"}, "ending offset not valid in streaming queries"),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"}, "must not be higher than"),
        ({"maxOffsetsPerTrigger": "0"}, "positive integer"),
        ({"maxBytesPerTrigger": "1k"}, "positive integer"),
        ({"maxTriggerDelay": "soon"}, "must be a time such as"),
        ({"commitGroup": " "}, "commitGroup is empty"),
    ],
)
def test_wrong_options_of_streams_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        parse_stream_options({"servers": "b:1", "subscribe": "t"} | options)


def test_options_of_streams_have_sparks_defaults() -> None:
    limits = parse_stream_options({"servers": "b:1", "subscribe": "t", "maxTriggerDelay": "2m"}).limits
    assert limits == TriggerLimits(max_trigger_delay_ms=120_000)
    assert TriggerLimits().max_trigger_delay_ms == 900_000
