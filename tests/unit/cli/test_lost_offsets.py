"""`strandline consume` of a log that loses its head, or of a topic that is made anew, while it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline.client.metadata import PartitionView, TopicView
from strandline.protocol.types import TopicPartition
from unit.cli.conftest import FakeRecord

T0 = TopicPartition("t", 0)
READ = ("consume", "-t", "t", "-f", "%o ", "-q")
FOREVER = ("--from-beginning", "--timeout-ms", "7000")


@pytest.fixture
def losing(shell: Any) -> Callable[..., None]:
    """The topic has seven records; in front of the second poll it has these instead."""
    shell.cluster.fill("t", 0, [b"%d" % number for number in range(7)])

    def to_have(offsets: range, end: int | None = None, topic_id: bytes | None = None) -> None:
        def change() -> None:
            if shell.cluster.polls != 2:
                return
            shell.cluster.records[T0] = [FakeRecord("t", 0, offset, value=b"later") for offset in offsets]
            if end is not None:
                shell.cluster.ends[T0] = end
            if topic_id is not None:
                shell.cluster.topics["t"] = TopicView("t", topic_id, {0: PartitionView(1, 0)})

        shell.cluster.before_poll = change

    return to_have


def test_what_the_log_lost_is_told_and_all_that_is_left_is_read(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(50, 53))
    ran = shell(*READ, *FOREVER)
    assert (ran.code, ran.out) == (0, "0 1 2 3 4 5 6 50 51 52 ")
    assert ran.err == "strandline: offsets 7 to 49 of t-0 are gone from the log, unread\n"


def test_one_lost_offset_is_told_as_one(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(8, 9))
    assert shell(*READ, *FOREVER).err == "strandline: offset 7 of t-0 is gone from the log, unread\n"


def test_it_is_told_where_nothing_is_left_to_read(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(0), end=100)
    ran = shell(*READ, *FOREVER)
    assert (ran.out, ran.err) == (
        "0 1 2 3 4 5 6 ",
        "strandline: offsets 7 to 99 of t-0 are gone from the log, unread\n",
    )


def test_it_is_told_of_a_partition_that_is_quiet_while_others_are_busy(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(0), end=100)
    change = shell.cluster.before_poll

    def also_fill() -> None:
        change()
        shell.cluster.fill("t", 1, [b"busy"])

    shell.cluster.fill("t", 1, [b"busy"])
    shell.cluster.before_poll = also_fill
    ran = shell(*READ, "--from-beginning", "-p", "0", "-p", "1", "-n", "150")
    assert (ran.code, ran.err) == (0, "strandline: offsets 7 to 99 of t-0 are gone from the log, unread\n")


def test_of_a_range_only_what_lies_in_it_is_told(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(50, 53))
    ran = shell(*READ, "-o", ":20")
    assert (ran.code, ran.out) == (0, "0 1 2 3 4 5 6 ")
    assert ran.err == "strandline: offsets 7 to 19 of t-0 are gone from the log, unread\n"


def test_who_wants_to_go_on_at_the_end_then_is_told_what_is_skipped(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(50, 53))
    ran = shell(*READ, *FOREVER, "-X", "auto.offset.reset=latest")
    assert (ran.code, ran.out) == (0, "0 1 2 3 4 5 6 ")
    assert ran.err == (
        "strandline: offsets 7 to 52 of t-0 are skipped: the log lost its place, and auto.offset.reset is latest\n"
    )


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(3), topic_id=bytes(15) + b"2")
    ran = shell(*READ, *FOREVER)
    assert (ran.code, ran.out) == (0, "0 1 2 3 4 5 6 0 1 2 ")
    assert ran.err == (
        "strandline: topic t was deleted and made anew: t-0 goes on at offset 0, after 7 of the old one\n"
    )


def test_a_log_that_was_cut_is_told(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(3))
    ran = shell(*READ, *FOREVER)
    assert (ran.code, ran.out) == (0, "0 1 2 3 4 5 6 0 1 2 ")
    assert ran.err == (
        "strandline: t-0 goes on at offset 0, though 7 was next: its log was cut there (an unclean election)\n"
    )


def test_many_partitions_that_lose_something_are_counted(shell: Any) -> None:
    for partition in range(9):
        shell.cluster.fill("t", partition, [b"a"])

    def change() -> None:
        if shell.cluster.polls == 2:
            for partition in shell.cluster.records:
                shell.cluster.records[partition] = [FakeRecord(partition.topic, partition.partition, 50)]

    shell.cluster.before_poll = change
    lines = shell(*READ, *FOREVER).err.splitlines()
    assert len(lines) == 6
    assert lines[5] == "strandline: 4 more partitions do not go on where they were, either"


@pytest.mark.parametrize("topic_id", [None, bytes(15) + b"2"])
@pytest.mark.parametrize("records", [0, 3])
def test_a_range_ends_where_its_log_was_cut_or_its_topic_made_anew(
    shell: Any, losing: Callable[..., None], topic_id: bytes | None, records: int
) -> None:
    losing(range(records), topic_id=topic_id)
    change = shell.cluster.before_poll

    def change_and_give_up() -> None:
        change()
        assert shell.cluster.polls < 100, "it polls for ever"

    shell.cluster.before_poll = change_and_give_up
    ran = shell(*READ, "-o", ":20")
    assert (ran.code, ran.out) == (1, "0 1 2 3 4 5 6 ")
    told, end = ran.err.splitlines()
    assert "t-0 goes on at offset 0" in told
    assert end == "strandline: not all of what was asked for could be read: see above what has gone"


def test_a_range_of_a_log_that_was_cut_ends_while_others_are_busy(shell: Any, losing: Callable[..., None]) -> None:
    losing(range(0), end=0)
    change = shell.cluster.before_poll

    def also_fill() -> None:
        change()
        assert shell.cluster.polls < 1000, "it polls for ever"
        shell.cluster.fill("t", 1, [b"busy"])
        if shell.cluster.polls > 80:
            shell.cluster.fill("t", 0, [b"foreign"] * 30)

    shell.cluster.fill("t", 1, [b"busy"])
    shell.cluster.before_poll = also_fill
    ran = shell("consume", "-t", "t", "-f", "%v ", "-q", "-o", ":200")
    assert (ran.code, "foreign" in ran.out) == (1, False)
