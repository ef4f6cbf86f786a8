"""Progress of a reassignment from what brokers say at one look, or at two."""

from __future__ import annotations

from strandline.client.metadata import PartitionView
from strandline.client.reassignment_progress import CopyProgress, Pace, copies, copy_bytes, pace
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VIEW = PartitionView(1, 5, (3, 4, 1), (1, 4))


def test_each_new_replica_is_measured_by_its_leaders_log() -> None:
    ongoing = {T0: OngoingReassignment((3, 4, 1), (3, 4), (1,)), T1: OngoingReassignment((2, 1), (), (1,))}
    sizes = {1: {T0: 1000}, 3: {T0: 250}, 4: {T0: 990}}
    assert copies(ongoing, {T0: VIEW, T1: VIEW}, sizes) == [
        CopyProgress(T0, 3, 250, 1000, False),
        CopyProgress(T0, 4, 1000, 1000, True),
    ]


def test_a_copy_that_is_larger_is_not_more_than_all_and_one_that_is_not_there_is_nothing() -> None:
    ongoing = {T0: OngoingReassignment((3, 4, 1), (3, 4), ())}
    view = PartitionView(1, 5, (3, 4, 1), (1,))
    told = copies(ongoing, {T0: view}, {1: {T0: 100}, 3: {T0: 700}})
    assert [(each.bytes_there, each.bytes_in_all, each.is_in_sync) for each in told] == [
        (100, 100, False),
        (0, 100, False),
    ]


def test_without_the_leaders_log_the_largest_of_those_in_sync_counts() -> None:
    assert copy_bytes(T0, VIEW, {3: {T0: 900}, 4: {T0: 70}}) == 70
    assert copy_bytes(T0, VIEW, {3: {T0: 900}, 5: {T0: 70}}) == 900
    assert copy_bytes(T0, None, {3: {T0: 900}}) == 900
    assert copy_bytes(T0, PartitionView(-1, 5), {}) == 0


def test_the_rate_between_two_looks_tells_when_it_is_done() -> None:
    assert pace(100, 300, 4.0, 500) == Pace(50.0, 10.0)
    assert pace(100, 300, 4.0, 0) == Pace(50.0, 0.0)
    assert pace(300, 300, 4.0, 500) == Pace(0.0, None)
    assert pace(300, 100, 4.0, 500) == Pace(0.0, None), "what was deleted at the leader is no progress"
    assert pace(0, 100, 0.0, 500) == Pace(0.0, None)
