"""The committed offsets of a group: what is read, when it changes, and what expires."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.groups.offsets import GroupOffsets, PendingCommit, Record, Standing
from strandline.protocol.group_records import (
    CommittedOffset,
    InvalidGroupRecord,
    OffsetKey,
    offset_key,
    read_key,
    read_offset_value,
)

RETENTION_MS = 1000
SIMPLE = Standing()


def at(offset: int, commit_ms: int = 0, expire_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_ms, expire_ms)


def group(**topics: list[CommittedOffset]) -> GroupOffsets:
    return GroupOffsets("g", {topic: dict(enumerate(offsets)) for topic, offsets in topics.items()})


def offset_of(offsets: GroupOffsets, partition: int = 0) -> int | None:
    committed = offsets.get("t", partition)
    return None if committed is None else committed.offset


def expired(offsets: GroupOffsets, standing: Standing, now_ms: int) -> dict[str, list[int]]:
    return {topic: found for topic, found in offsets.expired(standing, RETENTION_MS, now_ms) if found}


# --- commits ---------------------------------------------------------------------------------------------------------


def test_a_commit_is_read_once_it_is_committed() -> None:
    offsets = group(t=[at(1)])
    pending, records = offsets.begin({"t": {0: at(2), 1: at(7)}})
    assert [(read_key(key), read_offset_value(value).offset) for key, value in records if value] == [
        (OffsetKey("g", "t", 0), 2),
        (OffsetKey("g", "t", 1), 7),
    ]
    assert (offset_of(offsets), offset_of(offsets, 1)) == (1, None)
    offsets.settle(pending, is_committed=True)
    assert (offset_of(offsets), offset_of(offsets, 1)) == (2, 7)


def test_one_that_fails_leaves_the_former_and_the_next_one_counts() -> None:
    offsets = group(t=[at(1)])
    first, _ = offsets.begin({"t": {0: at(2)}})
    second, _ = offsets.begin({"t": {0: at(3)}})
    offsets.settle(first, is_committed=False)
    assert offset_of(offsets) == 1
    offsets.settle(second, is_committed=True)
    assert offset_of(offsets) == 3


def test_what_cannot_be_written_is_not_begun() -> None:
    offsets = group()
    with pytest.raises(InvalidGroupRecord):
        offsets.begin({"t": {0: CommittedOffset(1, metadata="x" * 2**15)}})
    assert not offsets


def test_a_group_with_a_commit_under_way_is_not_forgotten() -> None:
    offsets = group()
    pending, _ = offsets.begin({"t": {0: at(1)}})
    assert offsets
    offsets.settle(pending, is_committed=False)
    assert not offsets


def test_an_empty_commit_leaves_nothing() -> None:
    offsets = group()
    pending, records = offsets.begin({"t": {}})
    offsets.settle(pending, is_committed=True)
    assert not offsets and not records


# --- removals --------------------------------------------------------------------------------------------------------


def test_a_removal_counts_at_once_and_for_commits_under_way() -> None:
    offsets = group(t=[at(1), at(1)])
    pending, _ = offsets.begin({"t": {0: at(2), 2: at(2)}, "u": {0: at(2)}})
    assert offsets.remove("t", [0, 0, 2, 5]) == [(offset_key("g", "t", 0), None), (offset_key("g", "t", 2), None)]
    offsets.settle(pending, is_committed=True)
    assert {topic: list(partitions) for topic, partitions in offsets.committed.items()} == {"t": [1], "u": [0]}


def test_a_deleted_topic_goes_as_a_whole() -> None:
    offsets = group(t=[at(1)], u=[at(1)])
    pending, _ = offsets.begin({"t": {3: at(2)}})
    assert [key for key, _ in offsets.remove("t", offsets.partitions("t"))] == [
        offset_key("g", "t", 0),
        offset_key("g", "t", 3),
    ]
    offsets.settle(pending, is_committed=True)
    assert list(offsets.committed) == ["u"]
    assert offsets.partitions("t") == []


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_a_group_without_members_ever_keeps_each_offset_after_its_commit() -> None:
    offsets = group(t=[at(1, commit_ms=0), at(1, commit_ms=500)])
    assert expired(offsets, SIMPLE, 999) == {}
    assert expired(offsets, SIMPLE, 1000) == {"t": [0]}
    assert expired(offsets, SIMPLE, 1500) == {"t": [0, 1]}


def test_an_empty_group_keeps_all_after_its_last_member_left() -> None:
    offsets = group(t=[at(1, commit_ms=0), at(1, commit_ms=5000)])
    left = Standing("consumer", is_empty=True, since_ms=4000)
    assert expired(offsets, left, 4999) == {}
    assert expired(offsets, left, 5000) == {"t": [0, 1]}
    unknown = left._replace(since_ms=-1)
    assert expired(offsets, unknown, 5999) == {"t": [0]}


def test_a_group_with_members_keeps_what_it_is_subscribed_to() -> None:
    offsets = group(t=[at(1)], u=[at(1)])
    stable = Standing("consumer", is_empty=False, is_stable=True, since_ms=0, subscribed_topics=frozenset("t"))
    assert expired(offsets, stable, 10**6) == {"u": [0]}
    for standing in (
        stable._replace(is_stable=False),
        stable._replace(subscribed_topics=None),
        stable._replace(protocol_type="connect"),
    ):
        assert expired(offsets, standing, 10**6) == {}


def test_a_time_of_its_own_counts_instead_and_a_commit_under_way_keeps_its_partition() -> None:
    offsets = group(t=[at(1, 0, expire_ms=50), at(1, 0, expire_ms=5000), at(1)])
    assert expired(offsets, SIMPLE, 50) == {"t": [0]}
    offsets.begin({"t": {2: at(2, 1000)}})
    assert expired(offsets, SIMPLE, 2000) == {"t": [0]}


def test_others_may_change_the_group_between_two_topics() -> None:
    offsets = group(t=[at(1)], u=[at(1)], v=[at(1)])
    steps = offsets.expired(SIMPLE, RETENTION_MS, 2000)
    assert next(steps) == ("t", [0])
    offsets.remove("u", [0])
    offsets.settle(offsets.begin({"w": {0: at(1)}})[0], is_committed=True)
    assert list(steps) == [("u", []), ("v", [0])]


# --- against the log -------------------------------------------------------------------------------------------------


def replay(log: list[Record]) -> dict[int, int]:
    """What a loader of this log finds."""
    found: dict[int, int] = {}
    for key, value in log:
        about = read_key(key)
        assert isinstance(about, OffsetKey)
        if value is None:
            found.pop(about.partition, None)
        else:
            found[about.partition] = read_offset_value(value).offset
    return found


moves = st.one_of(
    st.tuples(st.just("commit"), st.sets(st.integers(0, 3), max_size=3)),
    st.tuples(st.just("remove"), st.sets(st.integers(0, 3), max_size=3)),
    st.tuples(st.sampled_from(["committed", "refused"]), st.just(set())),
)


@given(st.lists(moves, max_size=30))
def test_whatever_happens_it_ends_as_the_log_says(plays: list[tuple[str, set[int]]]) -> None:
    offsets = GroupOffsets("g")
    log: list[Record] = []
    underway: list[tuple[PendingCommit, list[Record]]] = []

    def settle() -> None:
        pending, _ = underway.pop(0)
        offsets.settle(pending, is_committed=True)

    for number, (move, partitions) in enumerate(plays):
        if move == "commit":
            pending, records = offsets.begin({"t": {partition: at(number) for partition in partitions}})
            underway.append((pending, records))
            log += records
        elif move == "remove":
            log += offsets.remove("t", partitions)
        elif move == "committed" and underway:
            settle()
        elif move == "refused":
            offsets.settle(offsets.begin({"t": {0: at(10**6)}})[0], is_committed=False)
    while underway:
        settle()
    assert {partition: offset_of(offsets, partition) for partition in offsets.committed.get("t", ())} == replay(log)
