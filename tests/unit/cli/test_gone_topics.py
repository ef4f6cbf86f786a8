"""`strandline consume` while topics are deleted that it reads: each is told once, and what is left is read on."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.client.metadata import PartitionView
from strandline.protocol.types import TopicPartition

COUNT = "Processed a total of {} messages\n"


def told(topic: str) -> str:
    return f"strandline: topic {topic} has gone, and is read no more\n"


def fill(shell: Any, *topics: str) -> None:
    for topic in topics:
        shell.cluster.fill(topic, 0, [topic.encode()])
        shell.cluster.add_topic(topic, {0: PartitionView(1, 0)})


def delete(shell: Any, *topics: str) -> None:
    for topic in topics:
        del shell.cluster.topics[topic]
        for partition in [each for each in shell.cluster.records if each.topic == topic]:
            del shell.cluster.records[partition]


def at(shell: Any, moments: dict[float, Any]) -> None:
    """Have things done once these seconds have passed."""
    left = dict(sorted(moments.items()))

    def look() -> None:
        for moment in [each for each in left if shell.session.clock >= each]:
            left.pop(moment)()

    shell.cluster.before_poll = look


@pytest.mark.parametrize("names", [("-t", "a,b"), ("-r", "[ab]"), ("-t", "a,b", "--group", "g")])
def test_what_is_left_is_read_on(shell: Any, names: tuple[str, ...]) -> None:
    fill(shell, "a", "b")
    at(shell, {2: lambda: delete(shell, "a"), 40: lambda: shell.cluster.fill("b", 0, [b"later"])})
    ran = shell("consume", *names, "--from-beginning", "-n", "3")
    assert (ran.code, ran.out, ran.err) == (0, "a\nb\nlater\n", told("a") + COUNT.format(3))


@pytest.mark.parametrize("names", [("-t", "a,b"), ("-t", "a,b", "--group", "g")])
def test_the_command_fails_once_nothing_is_left(shell: Any, names: tuple[str, ...]) -> None:
    fill(shell, "a", "b")
    at(shell, {2: lambda: delete(shell, "a"), 40: lambda: delete(shell, "b")})
    ran = shell("consume", *names, "--from-beginning")
    end = "strandline: nothing is left to read: b has gone\n"
    assert (ran.code, ran.out, ran.err) == (1, "a\nb\n", told("a") + COUNT.format(2) + end)


@pytest.mark.parametrize("group", [(), ("--group", "g")])
def test_many_topics_that_go_at_once_are_named_in_few_words(shell: Any, group: tuple[str, ...]) -> None:
    topics = [f"a{number}" for number in range(7)]
    fill(shell, *topics, "b")
    at(shell, {2: lambda: delete(shell, *topics), 40: lambda: delete(shell, "b")})
    ran = shell("consume", "-t", ",".join([*topics, "b"]), "-q", *group)
    named = [told(f"a{number}") for number in range(5)]
    end = "strandline: nothing is left to read: b has gone\n"
    assert (ran.code, ran.err) == (1, "".join(named) + "strandline: 2 more have gone, too\n" + end)
    fill(shell, *topics)
    at(shell, {shell.session.clock + 2: lambda: delete(shell, *topics)})
    ran = shell("consume", "-t", ",".join(topics), "-q", *group)
    assert ran.err == f"strandline: nothing is left to read: {', '.join(topics[:5])} and 2 more have gone\n"


def test_a_partition_that_was_asked_for_can_be_the_last_one(shell: Any) -> None:
    fill(shell, "a")
    at(shell, {2: lambda: delete(shell, "a")})
    ran = shell("consume", "-t", "a", "-p", "0", "-q")
    assert (ran.code, ran.err) == (1, "strandline: nothing is left to read: a has gone\n")


def test_a_pattern_waits_for_topics_when_its_last_one_has_gone(shell: Any) -> None:
    fill(shell, "a")
    at(shell, {2: lambda: delete(shell, "a"), 40: lambda: fill(shell, "a")})
    ran = shell("consume", "-r", "a.*", "--from-beginning", "-n", "2", "-q")
    waits = "strandline: no topic matches 'a.*' any more; those that appear are read\n"
    assert (ran.code, ran.out) == (0, "a\na\n")
    assert ran.err.startswith(told("a") + waits)


def test_what_has_gone_neither_waits_nor_goes_on(shell: Any) -> None:
    fill(shell, "a", "b")
    at(shell, {2: lambda: delete(shell, "a"), 40: lambda: shell.cluster.fill("b", 0, [b"later"])})
    shell.cluster.waiting = [{}] * 4 + [{TopicPartition("a", 0): RuntimeError("unknown")}] * 30
    ran = shell("consume", "-t", "a,b", "--from-beginning", "-n", "3", "-q")
    assert ran == (0, "a\nb\nlater\n", told("a"))


@pytest.mark.parametrize("names", [("-t", "a,b"), ("-r", "[ab]")])
def test_a_topic_that_is_away_for_a_moment_is_not_read_twice(shell: Any, names: tuple[str, ...]) -> None:
    fill(shell, "a", "b")
    kept = shell.cluster.records[TopicPartition("a", 0)]

    def back() -> None:
        shell.cluster.records[TopicPartition("a", 0)] = kept
        shell.cluster.add_topic("a", {0: PartitionView(1, 0)})

    at(shell, {2: lambda: delete(shell, "a"), 9: back})
    ran = shell("consume", *names, "--from-beginning", "--timeout-ms", "20000", "-q")
    assert (ran.code, ran.out, ran.err) == (0, "a\nb\n", "")


def test_a_read_to_the_end_reads_the_others_and_fails(shell: Any) -> None:
    fill(shell, "a", "b")
    at(shell, {0: lambda: delete(shell, "a")})
    ran = shell("consume", "-t", "a,b", "-o", ":end", "-q")
    end = "strandline: not all of what was asked for could be read: see above what has gone\n"
    assert (ran.code, ran.out, ran.err) == (1, "b\n", told("a") + end)
