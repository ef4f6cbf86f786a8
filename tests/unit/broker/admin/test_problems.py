"""Since when something is wrong, and that it is told of once."""

from __future__ import annotations

from strandline.broker.admin.problems import Level, Problem, Tracker, named


def lacking(what: str = "1 partition is under-replicated", subject: str = "") -> Problem:
    return Problem(Level.WARNING, "under-replicated", what, "t-0", "start it", subject)


OFFLINE = Problem(Level.ERROR, "directory", "is offline: EIO", "/data", "replace the disk", "/data")


def test_a_problem_keeps_the_moment_at_which_it_was_seen_first() -> None:
    tracker = Tracker()
    assert [each.since_ms for each in tracker.look([lacking()], 1000)] == [1000]
    assert [each.since_ms for each in tracker.look([lacking("2 partitions are under-replicated")], 2000)] == [1000]


def test_it_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    tracker = Tracker()
    tracker.look([lacking()], 500)
    assert tracker.beat([lacking()], 1000) == ([], [])
    begun, ended = tracker.beat([lacking()], 2000)
    assert ([(each.problem, each.since_ms) for each in begun], ended) == ([(lacking(), 500)], [])
    assert tracker.beat([lacking("more")], 3000) == ([], [])
    begun, ended = tracker.beat([], 4000)
    assert (begun, [(each.problem.what, each.since_ms) for each in ended]) == ([], [("more", 500)])
    assert tracker.beat([], 5000) == ([], [])


def test_what_only_one_beat_meets_is_not_told() -> None:
    tracker = Tracker()
    for now_ms in range(1000, 9000, 2000):
        assert tracker.beat([lacking()], now_ms) == ([], [])
        assert tracker.beat([], now_ms + 1000) == ([], [])


def test_one_that_comes_back_later_begins_anew() -> None:
    tracker = Tracker()
    for now_ms in (1000, 2000):
        tracker.beat([lacking()], now_ms)
    tracker.beat([], 3000)
    tracker.beat([lacking()], 4000)
    [known] = tracker.beat([lacking()], 5000).begun
    assert known.since_ms == 4000


def test_one_that_is_gone_for_a_moment_between_two_beats_is_the_same() -> None:
    tracker = Tracker()
    tracker.beat([lacking()], 1000)
    assert tracker.look([], 1500) == []
    [known] = tracker.beat([lacking()], 2000).begun
    assert known.since_ms == 1000
    assert tracker.look([lacking()], 2500)[0].since_ms == 1000


def test_two_of_a_kind_are_told_apart_by_their_subject() -> None:
    tracker = Tracker()
    for now_ms in (1000, 2000):
        tracker.beat([lacking(subject="a"), lacking(subject="b")], now_ms)
    [ended] = tracker.beat([lacking(subject="b")], 3000).ended
    assert ended.problem.subject == "a"


def test_what_a_look_that_was_broken_off_did_not_come_to_goes_on() -> None:
    tracker = Tracker()
    for now_ms in (1000, 2000):
        tracker.beat([lacking()], now_ms)
    assert tracker.beat([OFFLINE], 3000, is_whole=False) == ([], [])
    assert tracker.look([lacking()], 3500)[0].since_ms == 1000
    assert [each.problem for each in tracker.beat([OFFLINE], 4000, is_whole=False).begun] == [OFFLINE]
    assert [each.problem for each in tracker.beat([OFFLINE], 5000).ended] == [lacking()]


def test_the_worst_comes_first_then_the_oldest() -> None:
    tracker = Tracker()
    tracker.look([lacking(subject="old")], 1000)
    known = tracker.look([lacking(subject="new"), lacking(subject="old"), OFFLINE], 2000)
    assert [each.problem.subject for each in known] == ["/data", "old", "new"]


def test_a_line_names_the_first_few_and_counts_the_others() -> None:
    assert named(["t-1", "t-0"]) == "t-0, t-1"
    assert named([f"t-{number}" for number in range(5)]) == "t-0, t-1, t-2 and 2 more"
