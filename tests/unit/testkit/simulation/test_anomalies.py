"""What must not be found in a history: each anomaly is found by its name, and nothing else where all is well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.anomalies import Excuses, FinalLog, Replaced, anomalies
from strandline.testkit.simulation.history import (
    Commit,
    Committed,
    EndOffset,
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


def end_offset(offset: int, began_s: float, ended_s: float, process: str = "c") -> EndOffset:
    return EndOffset(process, STREAM, offset, began_s, ended_s)


def ends(*told: EndOffset, polls: tuple[Poll, ...] = ()) -> History:
    return History(list(WELL), list(polls), list(told))


def test_an_end_that_was_told_does_not_go_back() -> None:
    told = ends(end_offset(3, 1, 2), end_offset(2, 3, 4))
    assert names(told, log(0, 1, 2)) == ["end-offset-regress"]
    assert names(told, None, Excuses(disasters_s={STREAM: [1.5]})) == []
    assert names(told, None, Excuses(disasters_s={STREAM: [0.5]})) == ["end-offset-regress"]


def test_what_was_read_lies_below_an_end_that_is_told_later() -> None:
    assert names(ends(end_offset(2, 51, 52), polls=(poll(0, 1, 2),)), log(0, 1, 2)) == ["end-offset-regress"]
    assert names(ends(end_offset(3, 51, 52), polls=(poll(0, 1, 2),)), log(0, 1, 2)) == []


def test_an_end_may_be_lower_that_was_asked_for_before_or_by_somebody_else() -> None:
    assert names(ends(end_offset(3, 1, 2), end_offset(2, 1.5, 4)), log(0, 1, 2)) == []
    assert names(ends(end_offset(3, 1, 2), end_offset(2, 3, 4, process="other")), log(0, 1, 2)) == []


def test_where_an_end_lies_at_the_latest_is_no_end_that_was_told() -> None:
    at_most = replace(end_offset(3, 1, 2), is_bound=True)
    assert names(ends(at_most, end_offset(2, 3, 4)), log(0, 1, 2)) == []
    assert names(ends(end_offset(4, 0, 0.5), at_most), log(0, 1, 2)) == ["end-offset-regress"]


def test_what_had_no_outcome_may_come_to_the_next_life_of_the_topic() -> None:
    anew = Stream(STREAM.tp, 2)
    late = write(3, outcome=Outcome.UNKNOWN)
    assert anomalies(history(*WELL, late), {anew: log(3)}, Excuses()) == []
    [found] = anomalies(history(*WELL, late), {anew: log(2)}, Excuses())
    assert found.name == "phantom"


def test_what_is_not_read_in_the_end_is_unseen() -> None:
    found = log(0, 1, 2)
    found.read = {0: b"v0", 2: b"v2"}
    assert names(history(*WELL), found) == ["unseen"]


def test_a_record_whose_last_copy_a_disaster_took_is_not_lost_and_its_offset_may_be_given_out_again() -> None:
    of = history(*WELL, write(9, 2), polls=(poll(0, 1, 2), poll(2, at_s=60, values={2: b"v9"})))
    found = log(0, 1, 9)
    assert set(names(of, found)) >= {"lost-write", "inconsistent-offsets", "dirty-read", "nonmonotonic-poll"}
    assert names(of, found, Excuses(gone={b"v2"}, disasters_s={STREAM: [55]})) == []


def test_a_record_may_be_handed_out_after_the_disaster_that_took_it_and_its_reader_goes_back_then() -> None:
    of = history(*WELL, write(9, 1), polls=(poll(0, 1, 2), poll(1, at_s=60, values={1: b"v9"})))
    found = log(0, 9)
    gone = {b"v1", b"v2"}
    assert names(of, found, Excuses(gone=gone, disasters_s={STREAM: [40]})) == []
    assert names(of, found, Excuses(gone={b"v1"}, disasters_s={STREAM: [40]})).count("nonmonotonic-poll") == 1


def test_what_one_broker_alone_had_acknowledged_may_be_lost_where_the_caller_says_so() -> None:
    assert names(history(*WELL), log(0, 1), Excuses(weak={b"v2"})) == []


def test_what_lies_below_the_log_start_is_not_missed() -> None:
    found = FinalLog(2, {2: b"v2"})
    assert names(history(*WELL, polls=(poll(0, 1, 2),)), found) == []


def test_in_a_compacted_log_the_newest_record_of_each_key_stands_and_older_ones_may_be_missing() -> None:
    of = history(*(replace(each, key=b"a") for each in WELL), replace(write(3, 3), key=b"b"), polls=(poll(0, 2),))
    for offsets, found in (
        ((2, 3), []),
        ((0, 2, 3), []),
        ((1, 3), ["lost-write", "dirty-read"]),
        ((2,), ["lost-write"]),
    ):
        left = FinalLog(0, {offset: b"v%d" % offset for offset in offsets}, is_compacted=True)
        assert names(of, left) == found


def test_what_a_disaster_took_had_displaced_older_records_of_its_key_from_a_compacted_log() -> None:
    of = history(*(replace(each, key=b"a") for each in WELL))
    left = FinalLog(0, {0: b"v0"}, is_compacted=True)
    assert names(of, left, Excuses(gone={b"v2"})) == []
    assert names(of, left, Excuses(gone={b"v1"})) == ["lost-write"]
    unknown = replace(write(9, outcome=Outcome.UNKNOWN), key=b"a")
    assert names(history(*of.writes, unknown), left, Excuses(gone={b"v9"})) == []


def test_in_a_compacted_log_no_record_stands_elsewhere() -> None:
    of = history(*(replace(each, key=b"a") for each in WELL))
    found = names(of, FinalLog(0, {1: b"v2"}, is_compacted=True))
    assert set(found) == {"inconsistent-offsets", "lost-write"}


def test_a_repeated_record_may_stand_twice_where_its_producer_is_not_idempotent() -> None:
    assert names(history(write(0, 0, may_repeat=True)), log(0, 0)) == []


def test_a_new_reading_may_begin_anywhere() -> None:
    of = history(*WELL, polls=(poll(0, 1, 2), poll(0, reading=2), poll(2, reading=3)))
    assert names(of, log(0, 1, 2)) == []


def test_a_committed_offset_that_lies_below_an_acknowledged_one_is_a_regress() -> None:
    of = History(
        commits=[
            Commit("c1", "g", STREAM, 7, 0, 0.5, Outcome.OK),
            Commit("c1", "g", STREAM, 10, 1, 2, Outcome.OK),
            Commit("c1", "g", STREAM, 20, 3, 9, Outcome.UNKNOWN),
        ],
        committed=[Committed("c2", "g", STREAM, offset, 5, 6) for offset in (10, 20)],
    )
    assert names(of, None) == []
    of.committed.append(Committed("c2", "g", STREAM, 7, 5, 6))
    assert names(of, None) == ["committed-offset-regress"]
    assert names(of, None, Excuses(disasters_s={OFFSETS: [4]})) == []
    assert names(of, None, Excuses(disasters_s={OFFSETS: [1.5]})) == [], "its answer was on its way"
    assert names(of, None, Excuses(disasters_s={OFFSETS: [0.5]})) == ["committed-offset-regress"]
    by_replaced = Excuses(replaced={OFFSETS: [Replaced(5.5, 1.9)]})
    assert names(of, None, by_replaced) == [], "who answered may have been replaced before it was acknowledged"
    for replaced in (Replaced(4, 1.9), Replaced(5.5, 2.5)):
        excuses = Excuses(replaced={OFFSETS: [replaced]})
        assert names(of, None, excuses) == ["committed-offset-regress"], "not by then, or he knew of it"


def test_what_a_group_has_committed_one_of_its_members_has_got() -> None:
    polls = (
        replace(poll(0), group="g"),
        replace(poll(2, reading=2), process="c2", group="g"),
        poll(0, 1, 2, reading=3),
    )
    of = history(*WELL, polls=polls)
    of.commits = [Commit("c1", "g", STREAM, 1, 1, 2, Outcome.OK)]
    assert names(of, log(0, 1, 2)) == []
    of.commits.append(Commit("c2", "g", STREAM, 3, 1, 2, Outcome.OK))
    assert names(of, log(0, 1, 2)) == ["passed-over"]
    assert names(of, FinalLog(2, {2: b"v2"})) == [], "it was deleted"
    assert names(of, log(0, 1, 2), Excuses(disasters_s={STREAM: [1]})) == []
    assert names(of, log(0, 1, 2), Excuses(asked_starts={STREAM: 1})) == ["passed-over"]
    assert names(of, log(0, 1, 2), Excuses(asked_starts={STREAM: 2})) == [], "a leader that is gone had deleted it"


def test_what_is_asked_before_a_commit_is_answered_may_be_either() -> None:
    of = History(
        commits=[Commit("c1", "g", STREAM, 10, 1, 5, Outcome.OK)], committed=[Committed("c2", "g", STREAM, -1, 4, 6)]
    )
    assert names(of, None) == []


def test_a_commit_that_a_later_one_has_replaced_or_that_nobody_sent_is_a_regress() -> None:
    back = [Commit("c1", "g", STREAM, 20, 1, 2, Outcome.OK), Commit("c1", "g", STREAM, 10, 3, 4, Outcome.OK)]
    assert names(History(commits=back, committed=[Committed("c2", "g", STREAM, 10, 5, 6)]), None) == []
    for offset in (20, 15, -1):
        told = [Committed("c2", "g", STREAM, offset, 5, 6)]
        assert names(History(commits=back, committed=told), None) == ["committed-offset-regress"]
    assert names(History(committed=[Committed("c2", "g", STREAM, 0, 5, 6)]), None) == ["committed-offset-regress"]


def test_commits_under_way_at_once_may_come_in_any_order() -> None:
    both = [Commit("c1", "g", STREAM, 20, 1, 3, Outcome.OK), Commit("c2", "g", STREAM, 10, 2, 4, Outcome.OK)]
    for offset in (10, 20):
        assert names(History(commits=both, committed=[Committed("c", "g", STREAM, offset, 5, 6)]), None) == []


def test_a_new_life_of_a_topic_begins_with_nothing_or_with_what_is_left_of_the_one_before() -> None:
    anew = STREAM._replace(life=2)
    commits = [Commit("c1", "g", STREAM, 30, 1, 2, Outcome.OK)]
    for offset in (-1, 30):
        assert names(History(commits=commits, committed=[Committed("c2", "g", anew, offset, 5, 6)]), None) == []
    commits.append(Commit("c1", "g", anew, 3, 7, 8, Outcome.OK))
    for offset in (-1, 30):
        of = History(commits=commits, committed=[Committed("c2", "g", anew, offset, 9, 10)])
        assert names(of, None) == ["committed-offset-regress"]


def owned(process: str, generation: int, began_s: float, ended_s: float, group: str = "g") -> Ownership:
    return Ownership(process, group, STREAM.tp, generation, began_s, ended_s)


def test_two_owners_in_one_generation_are_found_whenever_they_had_it() -> None:
    of = History(ownerships=[owned("c1", 1, 0, 5), owned("c2", 2, 5, 9), owned("c2", 3, 9, 12)])
    assert names(of, None) == []
    of.ownerships.append(owned("c3", 2, 20, 30))
    assert names(of, None) == ["two-owners"]


def test_a_member_that_is_left_behind_may_believe_that_it_owns_what_others_have() -> None:
    of = History(ownerships=[owned("c1", 1, 0, 100), owned("c2", 1, 1, 2, group="other"), owned("c3", 2, 50, 60)])
    assert names(of, None) == []


def test_the_number_of_a_generation_comes_again_where_a_disaster_took_the_group() -> None:
    of = History(ownerships=[owned("c1", 1, 10, 20), owned("c2", 1, 30, 40)])
    assert names(of, None) == ["two-owners"]
    assert names(of, None, Excuses(disasters_s={OFFSETS: [25]})) == []
    assert names(of, None, Excuses(disasters_s={OFFSETS: [35]})) == ["two-owners"]


def test_what_a_member_that_is_left_behind_commits_is_stale() -> None:
    def commit(began_s: float) -> Commit:
        return Commit("c1", "g", STREAM, 10, began_s, began_s + 2, Outcome.OK, generation=1)

    owners = [owned("c1", 1, 0, 100), owned("c2", 2, 50, 60)]
    assert names(History(commits=[commit(49)], ownerships=owners), None) == [], "it may have come before the change"
    assert names(History(commits=[commit(51)], ownerships=owners), None) == ["stale-commit"]
    again = [*owners, owned("c1", 3, 52, 70)]
    assert names(History(commits=[commit(51)], ownerships=again), None) == [], "it committed as a member of the third"
    excuses = Excuses(disasters_s={OFFSETS: [50.5]})
    assert names(History(commits=[commit(51)], ownerships=owners), None, excuses) == [], "numbers began anew"
