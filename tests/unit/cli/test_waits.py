"""What is told of partitions that wait: not too soon, not too often, not too much."""

from __future__ import annotations

import pytest

from strandline.cli.waits import MOST_NAMED, TELL_AFTER_S, WaitLines
from strandline.protocol.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)

CASES: dict[str, list[tuple[float, dict[TopicPartition, str], list[str]]]] = {
    "an election is nobody's concern": [(0, {A: "x"}, []), (9, {A: "x"}, []), (10, {}, [])],
    "once, and when it goes on": [
        (0, {A: "x"}, []),
        (10, {A: "x"}, ["t-0 waits: x"]),
        (60, {A: "x"}, []),
        (61, {}, ["t-0 goes on"]),
        (62, {}, []),
    ],
    "the first wait counts from its beginning, whatever its reasons were": [
        (0, {A: "x"}, []),
        (9, {A: "y"}, []),
        (10, {A: "y"}, ["t-0 waits: y"]),
    ],
    "another reason, once it has stood": [
        (0, {A: "x"}, []),
        (10, {A: "x"}, ["t-0 waits: x"]),
        (30, {A: "y"}, []),
        (39, {A: "y"}, []),
        (40, {A: "y"}, ["t-0 waits: y"]),
    ],
    "a reason that comes and goes is no other one": [
        (0, {A: "x"}, []),
        (10, {A: "x"}, ["t-0 waits: x"]),
        (30, {A: "y"}, []),
        (35, {A: "x"}, []),
        (40, {A: "y"}, []),
        (60, {A: "x"}, []),
        (80, {A: "x"}, []),
    ],
    "each wait anew": [
        (0, {A: "x"}, []),
        (10, {A: "x"}, ["t-0 waits: x"]),
        (11, {}, ["t-0 goes on"]),
        (12, {A: "x"}, []),
        (22, {A: "x"}, ["t-0 waits: x"]),
    ],
    "one reason of several partitions": [
        (0, {B: "x", A: "x"}, []),
        (10, {B: "x", A: "x"}, ["t-0, t-1 wait: x"]),
        (11, {B: "x"}, ["t-0 goes on"]),
        (12, {}, ["t-1 goes on"]),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_told(case: str) -> None:
    lines = WaitLines()
    for now, waiting, expected in CASES[case]:
        assert lines.next_lines({key: Exception(why) for key, why in waiting.items()}, now) == expected, now


def test_many_partitions_are_counted() -> None:
    partitions = [TopicPartition("t", index) for index in range(100)]
    lines = WaitLines()
    for reason in ("one", "another of {}"):
        waiting: dict[TopicPartition, Exception] = {each: Exception(reason.format(each)) for each in partitions}
        lines.next_lines(waiting, 0)
        told = lines.next_lines(waiting, TELL_AFTER_S)
        assert len(told) == (1 if reason == "one" else MOST_NAMED + 1)
        assert told[-1].startswith("t-0, t-1, t-2, t-3, t-4 and 95 more" if reason == "one" else "t-5, t-6")
        assert lines.next_lines({}, TELL_AFTER_S) == ["t-0, t-1, t-2, t-3, t-4 and 95 more go on"]


def test_of_what_is_left_out_nothing_is_told_not_even_that_it_goes_on() -> None:
    lines = WaitLines()
    lines.next_lines({A: Exception("x")}, 0)
    assert lines.next_lines({A: Exception("x")}, TELL_AFTER_S) == ["t-0 waits: x"]
    assert lines.next_lines({A: Exception("y")}, 30, {A}) == lines.next_lines({A: Exception("y")}, 60, {A}) == []
