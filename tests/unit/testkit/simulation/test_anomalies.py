"""What must not be found in a history: each anomaly is found by its name, and nothing else where all is well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.anomalies import Excuses, FinalLog, anomalies
from strandline.testkit.simulation.history import (
    Commit,
    Committed,
    History,
    Outcome,
    Ownership,
    Poll,
    Stream,
    Write,
)

STREAM = Stream(TopicPartition("t", 0), 1)
OFFSETS = Stream(TopicPartition("__consumer_offsets", 0), 1)


def write(number: int, offset: int = -1, outcome: Outcome = Outcome.OK, *, may_repeat: bool = False) -> Write:
    """The n-th one is sent at n s and answered half a second later."""
    value = b"v%d" % number
    return Write("p", STREAM, value, -1, number, number + 0.5, outcome, offset, may_repeat)


def poll(*offsets: int, at_s: float = 50, reading: int = 1, values: dict[int, bytes] | None = None) -> Poll:
    values = values or {}
    return Poll("c", STREAM, reading, at_s, [(offset, values.get(offset, b"v%d" % offset)) for offset in offsets])


def log(*numbers: int, start: int = 0, **values: bytes) -> FinalLog:
    return FinalLog(start, {offset: b"v%d" % number for offset, number in enumerate(numbers)})


def history(*writes: Write, polls: tuple[Poll, ...] = ()) -> History:
    return History(list(writes), list(polls))


def names(of: History, log: FinalLog | None, excuses: Excuses | None = None) -> list[str]:
    return [each.name for each in anomalies(of, {} if log is None else {STREAM: log}, excuses or Excuses())]


WELL = tuple(write(number, number) for number in range(3))


def test_nothing_is_found_where_all_is_well() -> None:
    unknown, failed = write(3, outcome=Outcome.UNKNOWN), write(4, outcome=Outcome.FAILED)
    found = log(0, 1, 2, 3)
    found.read = dict(found.records)
    assert names(history(*WELL, unknown, failed, polls=(poll(0, 1), poll(2, 3))), found) == []


@pytest.mark.parametrize(
    ("name", "of", "found"),
    [
        ("lost-write", history(*WELL), log(0, 1)),
        ("duplicate", history(*WELL), log(0, 1, 2, 2)),
        ("inconsistent-offsets", history(*WELL, replace(WELL[1], value=b"other")), None),
        ("failed-write-visible", history(*WELL, write(3, outcome=Outcome.FAILED)), log(0, 1, 2, 3)),
        ("failed-write-visible", history(write(0, outcome=Outcome.FAILED), polls=(poll(0),)), None),
        ("phantom", history(*WELL), log(0, 1, 2, 7)),
        ("dirty-read", history(*WELL, write(3, outcome=Outcome.UNKNOWN), polls=(poll(3),)), log(0, 1, 2)),
        ("nonmonotonic-poll", history(*WELL, polls=(poll(0, 1), poll(1, 2))), log(0, 1, 2)),
        ("poll-skip", history(*WELL, polls=(poll(0), poll(2))), log(0, 1, 2)),
        ("real-time-order", history(write(5, 0), write(3, 1)), None),
    ],
)
def test_each_anomaly_is_found_by_its_name(name: str, of: History, found: FinalLog | None) -> None:
    assert names(of, found) == [name]


def test_what_is_not_read_in_the_end_is_unseen() -> None:
    found = log(0, 1, 2)
    found.read = {0: b"v0", 2: b"v2"}
    assert names(history(*WELL), found) == ["unseen"]


def test_a_record_whose_last_copy_a_disaster_took_is_not_lost_and_its_offset_may_be_given_out_again() -> None:
    of = history(*WELL, write(9, 2), polls=(poll(0, 1, 2), poll(2, at_s=60, values={2: b"v9"})))
    found = log(0, 1, 9)
    assert set(names(of, found)) >= {"lost-write", "inconsistent-offsets", "dirty-read", "nonmonotonic-poll"}
    assert names(of, found, Excuses(gone={b"v2"}, disasters_s={STREAM: [55]})) == []


def test_what_one_broker_alone_had_acknowledged_may_be_lost_where_the_caller_says_so() -> None:
    assert names(history(*WELL), log(0, 1), Excuses(weak={b"v2"})) == []


def test_what_lies_below_the_log_start_is_not_missed() -> None:
    found = FinalLog(2, {2: b"v2"})
    assert names(history(*WELL, polls=(poll(0, 1, 2),)), found) == []


def test_in_a_compacted_log_records_may_be_missing_and_none_may_stand_elsewhere() -> None:
    found = FinalLog(0, {1: b"v1"}, is_compacted=True)
    assert names(history(*WELL, polls=(poll(0, 2),)), found) == []
    assert names(history(*WELL), FinalLog(0, {1: b"v2"}, is_compacted=True)) == ["inconsistent-offsets"]


def test_a_repeated_record_may_stand_twice_where_its_producer_is_not_idempotent() -> None:
    assert names(history(write(0, 0, may_repeat=True)), log(0, 0)) == []


def test_a_new_reading_may_begin_anywhere() -> None:
    of = history(*WELL, polls=(poll(0, 1, 2), poll(0, reading=2), poll(2, reading=3)))
    assert names(of, log(0, 1, 2)) == []


def test_a_committed_offset_that_lies_below_an_acknowledged_one_is_a_regress() -> None:
    of = History(
        commits=[Commit("c1", "g", STREAM, 10, 1, 2, Outcome.OK), Commit("c1", "g", STREAM, 20, 3, 9, Outcome.UNKNOWN)],
        committed=[Committed("c2", "g", STREAM, 10, 5, 6)],
    )
    assert names(of, None) == []
    of.committed.append(Committed("c2", "g", STREAM, 7, 5, 6))
    assert names(of, None) == ["committed-offset-regress"]
    assert names(of, None, Excuses(disasters_s={OFFSETS: [4]})) == []
    assert names(of, None, Excuses(disasters_s={OFFSETS: [1.5]})) == ["committed-offset-regress"]


def test_what_is_asked_before_a_commit_is_answered_may_be_either() -> None:
    of = History(
        commits=[Commit("c1", "g", STREAM, 10, 1, 5, Outcome.OK)], committed=[Committed("c2", "g", STREAM, -1, 4, 6)]
    )
    assert names(of, None) == []


def test_two_owners_at_one_time_are_found_and_one_after_the_other_are_well() -> None:
    tp = STREAM.tp
    of = History(ownerships=[Ownership("c1", "g", tp, 1, 0, 5), Ownership("c2", "g", tp, 2, 5, 9)])
    assert names(of, None) == []
    of.ownerships.append(Ownership("c3", "g", tp, 3, 8, 12))
    assert names(of, None) == ["two-owners"]


def test_an_owner_that_a_later_one_does_not_outlast_is_still_one() -> None:
    tp = STREAM.tp
    of = History(
        ownerships=[
            Ownership("c1", "g", tp, 1, 0, 100),
            Ownership("c2", "other", tp, 1, 1, 2),
            Ownership("c3", "g", tp, 2, 50, 60),
        ]
    )
    assert names(of, None) == ["two-owners"]
