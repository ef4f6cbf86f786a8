"""Since when something is wrong, and that it is told of once."""

from __future__ import annotations

from strandline.broker.admin.problem_search import named
from strandline.broker.admin.problems import Level, Problem, Tracker


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
    begun, ended = tracker.beat([lacking()], 1000)
    assert ([(each.problem, each.since_ms) for each in begun], ended) == ([(lacking(), 500)], [])
    assert tracker.beat([lacking("more")], 2000) == ([], [])
    begun, ended = tracker.beat([], 3000)
    assert (begun, [(each.problem.what, each.since_ms) for each in ended]) == ([], [("more", 500)])
    assert tracker.beat([], 4000) == ([], [])


def test_one_that_comes_back_later_begins_anew() -> None:
    tracker = Tracker()
    tracker.beat([lacking()], 1000)
    tracker.beat([], 2000)
    [known] = tracker.beat([lacking()], 3000).begun
    assert known.since_ms == 3000


def test_one_that_is_gone_for_a_moment_between_two_beats_is_the_same() -> None:
    tracker = Tracker()
    tracker.beat([lacking()], 1000)
    assert tracker.look([], 1500) == []
    assert tracker.beat([lacking()], 2000) == ([], [])
    assert tracker.look([lacking()], 2500)[0].since_ms == 1000


def test_two_of_a_kind_are_told_apart_by_their_subject() -> None:
    tracker = Tracker()
    tracker.beat([lacking(subject="a"), lacking(subject="b")], 1000)
    [ended] = tracker.beat([lacking(subject="b")], 2000).ended
    assert ended.problem.subject == "a"


def test_the_worst_comes_first_then_the_oldest() -> None:
    tracker = Tracker()
    tracker.look([lacking(subject="old")], 1000)
    known = tracker.look([lacking(subject="new"), lacking(subject="old"), OFFLINE], 2000)
    assert [each.problem.subject for each in known] == ["/data", "old", "new"]


def test_a_line_names_the_first_few_and_counts_the_others() -> None:
    assert named(["t-1", "t-0"]) == "t-0, t-1"
    assert named([f"t-{number}" for number in range(5)]) == "t-0, t-1, t-2 and 2 more"
