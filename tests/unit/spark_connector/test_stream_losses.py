"""A stream whose topic lost something: what that is called, and how the stream goes on where loss is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline.client.errors import LeaderNotAvailable
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import (
    AddedPartitionNotFromZero,
    DataLoss,
    EndBehindLatest,
    EndBehindRun,
    InitialOffsetNotFound,
    LostInRun,
    PartitionOffsetChanged,
    PartitionsDeleted,
    PartitionsNotNamed,
)
from strandline.spark_connector.streaming.offsets import StreamOffset, to_json
from strandline.spark_connector.streaming.query import StreamQuery
from support.memory_source import T0, MemoryCluster
from support.stream_queries import NEW, OLD, T1, Offset, planned, positions, stored


@pytest.mark.parametrize("was_read", [False, True])
def test_a_partition_that_is_lost_in_a_run_of_available_now_is_told_once(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, warnings: list[str], was_read: bool
) -> None:
    strict = new_query(startingOffsets="earliest", maxOffsetsPerTrigger="7")
    lenient = new_query(startingOffsets="earliest", maxOffsetsPerTrigger="7", failOnDataLoss="false")
    begins = {"t": {"0": 0, "1": 0} if was_read else {"0": 0}}
    for query in (strict, lenient):
        query.prepare_available_now()
    del cluster.batches[T1]
    with pytest.raises(LostInRun, match=r"LOST_TOPIC_PARTITIONS_IN_END_OFFSET.*t-1 .*restart the query"):
        strict.latest(begins, is_limited=True)
    at = lenient.latest(begins, is_limited=True)
    assert positions(at) == {"0": 7}
    assert positions(lenient.latest(stored(at), is_limited=True)) == {"0": 10}
    assert len(warnings) == 1


def test_a_batch_whose_partition_is_lost_in_its_run_says_so(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    query = new_query(startingOffsets="earliest")
    query.prepare_available_now()
    first = query.initial()
    end = query.latest(first, is_limited=True)
    del cluster.batches[T1]
    with pytest.raises(LostInRun, match="t-1 was deleted before offsets up to 4 were read"):
        query.plan(stored(first), stored(end))
    with pytest.raises(PartitionsDeleted):  # it was gone before this run began
        again = new_query()
        again.prepare_available_now()
        again.plan(stored(first), stored(end))


@pytest.mark.parametrize(("when", "error"), [("in the run", EndBehindLatest), ("before it", EndBehindRun)])
def test_an_end_that_its_partition_lost_is_told_from_a_lost_beginning(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, when: str, error: type[DataLoss]
) -> None:
    query = new_query(startingOffsets="earliest")
    first = query.initial()
    end = query.latest(first, is_limited=False)
    if when == "in the run":
        query.prepare_available_now()
    cluster.high_watermarks[T0] = 8
    if when == "before it":
        query.prepare_available_now()
    with pytest.raises(error, match="END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN"):
        query.plan(stored(first), stored(end))
    cluster.high_watermarks[T0], cluster.log_start[T0] = 10, 3
    with pytest.raises(DataLoss, match="COULD_NOT_READ_OFFSET_RANGE"):
        query.plan(stored(first), stored(end))


def test_a_topic_made_anew_in_a_run_of_available_now_is_for_the_next_run(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    strict, lenient = new_query(), new_query(failOnDataLoss="false")
    at = {"t": {"0": 2, "1": 0}, "#ids": to_json(StreamOffset({}, {"t": OLD}))["#ids"]}
    for query in (strict, lenient):
        query.prepare_available_now()
    cluster.topic_ids["t"] = NEW
    with pytest.raises(PartitionsDeleted, match="created anew"):
        strict.latest(at, is_limited=True)
    end = lenient.latest(at, is_limited=True)
    assert positions(end) == {"0": 0, "1": 0}
    assert lenient.latest(stored(end), is_limited=True) == end
    following = new_query()
    following.prepare_available_now()
    assert positions(following.latest(stored(end), is_limited=True)) == {"0": 10, "1": 4}


def test_a_new_partition_that_is_gone_before_its_first_batch_has_no_initial_offset(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, warnings: list[str]
) -> None:
    at = {"t": {"0": 10, "1": 4}}
    cluster.add(TopicPartition("t", 2), 0, [b"new"] * 6)
    end = new_query().latest(at, is_limited=False)
    del cluster.batches[TopicPartition("t", 2)]
    with pytest.raises(InitialOffsetNotFound, match=r"INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS.*t-2"):
        new_query().plan(at, stored(end))
    assert new_query(failOnDataLoss="false").plan(at, stored(end)) == []
    assert len(warnings) == 1


def test_a_partition_that_appears_without_its_first_records_is_a_loss(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, warnings: list[str]
) -> None:
    added = TopicPartition("t", 2)
    for is_allowed in (False, True):
        query = new_query(failOnDataLoss=str(not is_allowed).lower())
        at = query.latest(query.initial(), is_limited=False)
        if is_allowed:
            at = {"t": {"0": 10, "1": 4}}
        cluster.add(added, 0, [b"new"] * 6)
        cluster.log_start[added] = 2
        if not is_allowed:
            with pytest.raises(AddedPartitionNotFromZero, match="failOnDataLoss to false"):
                query.latest(stored(at), is_limited=False)
        else:
            assert planned(query, at, query.latest(stored(at), is_limited=False)) == {2: (2, 6)}
            assert warnings


@pytest.mark.parametrize("is_allowed", [False, True])
def test_a_topic_made_anew_is_told_from_the_old_one(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, warnings: list[str], is_allowed: bool
) -> None:
    query = new_query(failOnDataLoss=str(not is_allowed).lower(), startingOffsets="earliest")
    at = query.latest(query.initial(), is_limited=False)
    cluster.topic_ids["t"] = NEW
    cluster.add(T0, 10, [b"of the new one"] * 10)  # it has grown beyond the old offset already
    again = new_query(failOnDataLoss=str(not is_allowed).lower(), startingOffsets="earliest")
    if not is_allowed:
        with pytest.raises(PartitionsDeleted, match="created anew"):
            again.latest(stored(at), is_limited=False)
        return
    end = again.latest(stored(at), is_limited=False)
    assert planned(again, at, end) == {0: (0, 20), 1: (0, 4)}
    assert "created anew" in warnings[0]
    assert again.latest(stored(end), is_limited=False) == end


@pytest.mark.parametrize(
    ("harm", "error", "then"),
    [
        (lambda cluster: cluster.batches.pop(T1), PartitionsDeleted, {"0": 10}),
        (lambda cluster: cluster.batches.clear(), PartitionsDeleted, {}),
        (lambda cluster: cluster.high_watermarks.update({T0: 7}), PartitionOffsetChanged, {"0": 7, "1": 4}),
    ],
)
def test_what_is_gone_fails_the_query_or_is_passed_over(
    new_query: Callable[..., StreamQuery],
    cluster: MemoryCluster,
    warnings: list[str],
    harm: Callable[[MemoryCluster], Any],
    error: type[DataLoss],
    then: dict[str, int],
) -> None:
    strict, lenient = new_query(startingOffsets="earliest"), new_query(failOnDataLoss="false")
    at = strict.latest(strict.initial(), is_limited=False)
    harm(cluster)
    with pytest.raises(error, match="failOnDataLoss"):
        strict.latest(stored(at), is_limited=False)
    end = lenient.latest(stored(at), is_limited=False)
    assert end.get("t", {}) == then
    assert warnings
    assert planned(lenient, at, end) == {}


def test_a_partition_deleted_while_its_offsets_are_looked_up_is_a_loss(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = new_query(startingOffsets="earliest")
    at = query.latest(query.initial(), is_limited=False)
    held = cluster.held

    def held_of_what_is_left(partitions: list[TopicPartition]) -> Any:
        cluster.batches.pop(T1, None)
        if T1 in partitions:
            raise LeaderNotAvailable(ErrorCode.LEADER_NOT_AVAILABLE, "no broker has told of partition t-1 yet")
        return held(partitions)

    monkeypatch.setattr(cluster, "held", held_of_what_is_left)
    with pytest.raises(PartitionsDeleted, match="t-1"):
        query.latest(stored(at), is_limited=False)

    asked: list[list[TopicPartition]] = []

    def nobody_answers(partitions: list[TopicPartition]) -> Any:
        asked.append(partitions)
        raise LeaderNotAvailable(ErrorCode.LEADER_NOT_AVAILABLE, "partition t-0 has no leader")

    monkeypatch.setattr(cluster, "held", nobody_answers)
    with pytest.raises(LeaderNotAvailable, match="t-0 has no leader"):
        query.latest(stored(at), is_limited=False)
    assert asked == [[T0]], "what is still there is not asked for twice: each time may take a minute"


def test_records_that_retention_took_before_they_were_read_are_a_loss(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    strict, lenient = new_query(startingOffsets="earliest"), new_query(failOnDataLoss="false")
    first = strict.initial()
    end = strict.latest(first, is_limited=False)
    cluster.log_start[T0] = 6
    with pytest.raises(DataLoss):
        strict.plan(stored(first), stored(end))
    assert planned(lenient, first, end) == {0: (6, 10), 1: (0, 4)}


OTHER = TopicPartition("u", 0)
BOTH = {"t": {"0": 10, "1": 4}, "u": {"0": 1}}


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ({"subscribe": "t"}, "u-0"),
        ({"subscribe": "u"}, "t-0, t-1"),
        ({"assign": '{"t":[0],"u":[0]}'}, "t-1"),
        ({"subscribePattern": "^t$"}, "u-0"),
    ],
)
def test_partitions_that_the_options_name_no_longer_are_not_called_deleted(
    streams: Callable[..., StreamQuery],
    cluster: MemoryCluster,
    warnings: list[str],
    options: dict[str, str],
    left_out: str,
) -> None:
    cluster.add(OTHER, 0, [b"x"] * 3)
    words = rf"Partitions {left_out} were .* no longer named by its options \(subscribe,"
    with pytest.raises(PartitionsNotNamed, match=rf"PARTITIONS_DELETED\] {words}.* Name them again") as raised:
        streams(**options).latest(BOTH, is_limited=False)
    assert "lost because" not in str(raised.value) and "do not exist" not in str(raised.value)
    lenient = streams(**options, failOnDataLoss="false")
    end = lenient.latest(BOTH, is_limited=False)
    assert not {f"{topic}-{number}" for topic in ("t", "u") for number in end.get(topic, {})} & {*left_out.split(", ")}
    assert len(warnings) == 1
    assert f"{left_out} were read by this query and are no longer named" in warnings[0]
    assert lenient.latest(stored(end), is_limited=False) == end
    assert len(warnings) == 1, "told once"


def test_a_partition_that_is_left_out_and_deleted_is_called_deleted(
    streams: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    with pytest.raises(PartitionsDeleted, match=r"Partitions u-0 were .* do not exist any more.*lost because"):
        streams(subscribe="t").latest(BOTH, is_limited=False)
    with pytest.raises(PartitionsDeleted, match=r"Partitions u-0 were .* do not exist any more"):
        streams(subscribe="t,u").latest(BOTH, is_limited=False)


def test_a_batch_that_was_planned_before_the_options_changed_is_read_as_planned(
    streams: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    cluster.add(OTHER, 0, [b"x"] * 3)
    end = streams(subscribe="t,u").latest(BOTH, is_limited=False)
    (wanted,) = streams(subscribe="t").plan(BOTH, stored(end))
    assert (wanted.topic, wanted.start, wanted.end) == ("u", 1, 3)


@pytest.fixture
def far_behind(cluster: MemoryCluster) -> MemoryCluster:
    """Partition 0 holds [900, 1000) of a thousand records of some hundred bytes."""
    cluster.batches[T0].clear()
    for base in range(0, 1000, 50):
        cluster.add(T0, base, [b"v" * 100] * 50)
    cluster.log_start[T0] = 900
    return cluster


def batches_of(query: StreamQuery, at: Offset, most: int = 30) -> tuple[list[tuple[int, int] | None], Offset]:
    """What each batch reads of partition 0 until nothing is left, each from what a checkpoint holds, and the end."""
    found: list[tuple[int, int] | None] = []
    while len(found) < most:
        end = query.latest(stored(at), is_limited=True)
        if end == at:
            return found, at
        found.append(planned(query, at, end).get(0))
        at = end
    return found, at


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_stream_far_behind_its_log_start_goes_there_at_once_where_loss_is_allowed(
    new_query: Callable[..., StreamQuery],
    far_behind: MemoryCluster,
    warnings: list[str],
    limit: str,
    is_available_now: bool,
) -> None:
    value = {"maxOffsetsPerTrigger": "25", "maxBytesPerTrigger": "2700"}[limit]
    query = new_query(failOnDataLoss="false", **{limit: value})
    if is_available_now:
        query.prepare_available_now()
    found, end = batches_of(query, {"t": {"0": 10, "1": 4}})
    assert positions(end) == {"0": 1000, "1": 4}
    assert found[0] is not None and found[0][0] == 900
    assert all(each is not None and 20 <= each[1] - each[0] <= 26 for each in found[:-1]), "limits count what is there"
    assert len(warnings) == 1 and warnings[0].startswith("Offsets [10, 9"), "told once"


def test_a_stream_far_behind_its_log_start_still_fails_where_loss_is_not_allowed(
    new_query: Callable[..., StreamQuery], far_behind: MemoryCluster
) -> None:
    at = {"t": {"0": 10, "1": 4}}
    query = new_query(maxOffsetsPerTrigger="25")
    end = query.latest(at, is_limited=True)
    with pytest.raises(DataLoss, match=r"COULD_NOT_READ_OFFSET_RANGE\] Offsets \[10, 35\) of t-0"):
        query.plan(at, stored(end))
    # The batch is in the checkpoint: who allows loss now ends it, and is at the log start with the next one.
    lenient = new_query(maxOffsetsPerTrigger="25", failOnDataLoss="false")
    assert lenient.plan(at, stored(end)) == []
    found, _ = batches_of(lenient, end)
    assert found == [(900, 925), (925, 950), (950, 975), (975, 1000)]


def test_a_batch_over_a_loss_is_repeated_as_it_was_planned(
    new_query: Callable[..., StreamQuery], far_behind: MemoryCluster
) -> None:
    at = {"t": {"0": 10, "1": 4}}
    end = new_query(maxOffsetsPerTrigger="25", failOnDataLoss="false").latest(at, is_limited=True)
    for log_start, wanted in ((900, {0: (900, 925)}), (910, {0: (910, 925)}), (930, {})):
        far_behind.log_start[T0] = log_start  # less may be left than when it was planned, but nothing else is read
        again = new_query(maxOffsetsPerTrigger="25", failOnDataLoss="false")
        assert planned(again, at, end) == wanted


def test_a_run_of_available_now_does_not_go_beyond_its_end_if_all_of_it_is_lost(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, warnings: list[str]
) -> None:
    query = new_query(failOnDataLoss="false", maxOffsetsPerTrigger="3")
    query.prepare_available_now()
    cluster.add(T0, 10, [b"late"] * 10)
    cluster.log_start[T0] = 15
    found, end = batches_of(query, {"t": {"0": 2, "1": 4}})
    assert found == [None]
    assert positions(end) == {"0": 10, "1": 4}
    following, _ = batches_of(new_query(failOnDataLoss="false", maxOffsetsPerTrigger="3"), end)
    assert following == [(15, 18), (18, 20)]


def test_a_partition_all_of_whose_records_are_lost_is_passed_over_in_one_batch(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, warnings: list[str]
) -> None:
    cluster.log_start[T0] = 10
    query = new_query(failOnDataLoss="false", maxOffsetsPerTrigger="2", maxBytesPerTrigger="1")
    found, end = batches_of(query, {"t": {"0": 2, "1": 4}})
    assert (found, positions(end), len(warnings)) == ([None], {"0": 10, "1": 4}, 1)
