"""`strandline consume` over a fake cluster: what is read, how it is printed, and how it ends."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from strandline.cli.progress import ProgressLine
from strandline.client.assignment import FetchedBatches
from strandline.client.errors import LeaderNotAvailable, UnknownTopic
from strandline.client.metadata import PartitionView, TopicView
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from unit.cli.conftest import TOPIC_ID, FakeConsumer, FakeRecord, fetched_batches

NO_LEADER = LeaderNotAvailable(ErrorCode.LEADER_NOT_AVAILABLE, "partition t-0 has no leader")
WAITED = [{TopicPartition("t", 0): NO_LEADER}] * 20
"""Asked each second: longer than what nobody is told of."""
TOLD = f"strandline: t-0 waits: {NO_LEADER}\n"
GOES_ON = "strandline: t-0 goes on\n"


def test_consume_says_once_what_a_partition_waits_for_and_when_it_goes_on(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a"])
    shell.cluster.waiting = list(WAITED)
    ran = shell("consume", "-t", "t", "--from-beginning", "--timeout-ms", "60000")
    assert (ran.code, ran.out, ran.err) == (0, "a\n", f"{TOLD}{GOES_ON}Processed a total of 1 messages\n")


def test_consume_reads_to_the_end_as_it_is_now(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a", b"b"])
    shell.cluster.fill("t", 1, [b"c"])
    ran = shell("consume", "-t", "t", "--from-beginning", "-e")
    assert (ran.code, ran.out) == (0, "a\nb\nc\n")
    assert ran.err == "Processed a total of 3 messages\n"


def test_consume_stops_before_the_end_of_the_range(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"%d" % number for number in range(10)])
    assert shell("consume", "-t", "t", "-o", "3:6").out == "3\n4\n5\n"
    assert shell("consume", "-t", "t", "-o", "-2:end").out == "8\n9\n"


def test_a_gap_at_the_end_of_the_range_does_not_keep_consume_waiting(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a"])
    shell.cluster.ends[TopicPartition("t", 0)] = 5
    ran = shell("consume", "-t", "t", "-o", ":end")
    assert (ran.code, ran.out) == (0, "a\n")


def test_max_messages_and_timeout_end_an_endless_read(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a", b"b", b"c"])
    assert shell("consume", "-t", "t", "--from-beginning", "-n", "2").out == "a\nb\n"
    ran = shell("consume", "-t", "t", "--from-beginning", "--timeout-ms", "1000")
    assert (ran.code, ran.out) == (0, "a\nb\nc\n")


def test_a_time_is_turned_into_offsets_by_the_brokers(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"old"], timestamp_ms=1_600_000_000_000)
    shell.cluster.fill("t", 0, [b"new"], timestamp_ms=1_700_000_059_000)
    assert shell("consume", "-t", "t", "-o", "@-10s", "-e").out == "new\n"


def test_formats_and_json(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"v"], key=b"k")
    assert shell("consume", "-t", "t", "-o", ":end", "-f", r"%t/%p@%o %k=%v\n").out == "t/0@0 k=v\n"
    assert json.loads(shell("consume", "-t", "t", "-o", ":end", "-J").out)["payload"] == "v"
    assert shell("consume", "-t", "t", "-o", ":end", "--print-key", "--print-offset").out == "Offset:0\tk\tv\n"


@pytest.mark.parametrize("key", ["auto.offset.reset", "auto_offset_reset"])
def test_the_reset_policy_says_where_to_begin_unless_something_else_does(shell: Any, key: str) -> None:
    shell.cluster.fill("t", 0, [b"a", b"b"])
    args = ("consume", "-t", "t", "--timeout-ms", "1000")
    assert shell(*args, "-X", f"{key}=earliest").out == "a\nb\n"
    assert shell(*args, "-X", f"{key}=latest").out == shell(*args).out == ""
    assert shell(*args, "-X", f"{key}=earliest", "-o", "1").out == "b\n"
    assert shell.cluster.settings["auto_offset_reset"] == "earliest"
    assert shell("consume", "-t", "t", "-e", "-X", f"{key}=latest").out == ""
    assert shell("consume", "-t", "t", "-e", "-X", f"{key}=earliest").out == "a\nb\n"
    assert shell("consume", "-t", "t", "-e", "--from-beginning", "-X", f"{key}=latest").out == "a\nb\n"
    for policy in ("none", "newest"):
        ran = shell(*args, "-X", f"{key}={policy}")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert f"{key}={policy}" in ran.err.replace("auto.offset.reset", key)


@pytest.mark.parametrize(
    ("args", "policy"),
    [
        ((), "latest"),
        (("-X", "auto.offset.reset=earliest"), "earliest"),
        (("-X", "auto.offset.reset=none"), "none"),
        (("--from-beginning", "-X", "auto.offset.reset=latest"), "earliest"),
    ],
)
def test_a_group_is_given_the_reset_policy(shell: Any, args: tuple[str, ...], policy: str) -> None:
    shell.cluster.fill("t", 0, [b"a"])
    assert shell("consume", "-t", "t", "--group", "g", "--timeout-ms", "1000", *args).code == 0
    given = {key: value for key, value in shell.cluster.settings.items() if "reset" in key}
    assert given == {"auto_offset_reset": policy}


def test_an_offset_behind_the_end_is_answered_with_the_end(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a", b"b", b"c"])
    told = "strandline: t-0 ends at 3, before offset 99999999: "
    ran = shell("consume", "-t", "t", "-o", "99999999", "-p", "0", "--timeout-ms", "1000")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"{told}what comes after its end is read\nProcessed a total of 0 messages\n"
    for range_of in ("99999999:end", "99999999:100000000"):
        ran = shell("consume", "-t", "t", "-o", range_of, "-p", "0")
        assert (ran.code, ran.err) == (0, f"{told}nothing of it is read\nProcessed a total of 0 messages\n")
    assert shell("consume", "-t", "t", "-o", "3:end").err == "Processed a total of 0 messages\n"


def test_an_offset_before_the_beginning_is_answered_with_the_beginning(shell: Any) -> None:
    shell.cluster.records[TopicPartition("t", 0)] = [FakeRecord("t", 0, 100, value=b"x")]
    told = "strandline: t-0 begins at 100, after offset 47: what was before has gone from the log\n"
    for range_of, out in (("47:end", "x\n"), ("47:90", "")):
        ran = shell("consume", "-t", "t", "-o", range_of, "-q")
        assert (ran.code, ran.out, ran.err) == (0, out, told)
    for range_of in ("0:end", "start:end", "+0:end", "-70:end", "100:end"):
        ran = shell("consume", "-t", "t", "-o", range_of, "-q")
        assert (ran.code, ran.out, ran.err) == (0, "x\n", "")


def test_many_partitions_that_end_before_the_offset_are_counted(shell: Any) -> None:
    for partition in range(9):
        shell.cluster.fill("t", partition, [b"a"])
    lines = shell("consume", "-t", "t", "-o", "7:end").err.splitlines()
    assert len(lines) == 7
    assert lines[5] == "strandline: 4 more partitions end before that, too"


def test_one_partition_only(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a"])
    shell.cluster.fill("t", 1, [b"b"])
    assert shell("consume", "-t", "t", "-o", ":end", "-p", "1").out == "b\n"
    ran = shell("consume", "-t", "t", "-p", "7")
    assert ran.code == 2
    assert "has no partition 7" in ran.err


def test_an_interrupted_consume_says_how_much_it_printed_and_exits_130(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a"])
    shell.cluster.interrupt_at_poll = 2
    ran = shell("consume", "-t", "t", "--from-beginning")
    assert ran == (130, "a\n", "Processed a total of 1 messages\n")


def test_a_second_ctrl_c_while_the_command_ends_loses_neither_commit_nor_count(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "stop", interrupted)
    shell.cluster.fill("t", 0, [b"a", b"b"])
    shell.cluster.interrupt_at_poll = 2
    ran = shell("consume", "-t", "t", "--group", "g", "--from-beginning")
    assert (ran.code, ran.err.splitlines()[0]) == (130, "Processed a total of 2 messages")
    assert [each.offset for each in shell.cluster.committed["g"].values()] == [2]


LINES = ("consume", "--from-beginning", "-e", "-q")


def test_several_topics_are_read_however_they_are_named(shell: Any) -> None:
    for topic in ("a", "b", "c"):
        shell.cluster.fill(topic, 0, [topic.encode()])
        shell.cluster.add_topic(topic, {0: PartitionView(1, 0)})
    shell.cluster.topics["__a"] = TopicView("__a", TOPIC_ID, {0: PartitionView(1, 0)}, is_internal=True)
    for args in (("-t", "a", "-t", "c"), ("-t", "a,c,a"), ("-r", "[ac]|__a"), ("--include", "[ac]")):
        assert (shell(*LINES, *args).out, args) == ("a\nc\n", args)
    assert shell("consume", "-t", "a,b", "--group", "g", "--from-beginning", "--timeout-ms", "1").out == "a\nb\n"
    assert shell.cluster.settings["subscribed"] == ["a", "b"]
    shell("consume", "-r", "b|c", "--group", "g", "--from-beginning", "--timeout-ms", "1")
    assert shell.cluster.settings["subscribed"].pattern == "b|c"
    ran = shell(*LINES, "-t", "a,missing")
    assert (ran.code, "topic 'missing' does not exist" in ran.err) == (1, True)


def test_topics_and_partitions_that_come_later_are_read_from_their_beginning(shell: Any) -> None:
    shell.cluster.fill("a1", 0, [b"old"])
    shell.cluster.add_topic("a1", {0: PartitionView(1, 0)})

    def come() -> None:
        if shell.cluster.polls == 2:
            shell.cluster.fill("a1", 1, [b"grown"])
            shell.cluster.fill("a2", 0, [b"new"])
            shell.cluster.fill("b", 0, [b"other"])
            for topic in ("a2", "b"):
                shell.cluster.add_topic(topic, {0: PartitionView(1, 0)})

    shell.cluster.before_poll = come
    ran = shell("consume", "-r", "a.", "--timeout-ms", "20000", "-q")
    assert (ran.code, sorted(ran.out.splitlines()), ran.err) == (0, ["grown", "new"], "")
    for late in (TopicPartition("a1", 1), TopicPartition("a2", 0)):
        del shell.cluster.records[late]
    shell.cluster.polls = 0
    ran = shell("consume", "-t", "a1", "--timeout-ms", "20000", "-q", "-v")
    assert ran.out == "grown\n"
    assert ran.err.splitlines() == [
        "strandline: a1-0 is read from offset 1 on",
        "strandline: a1-1 is new, and read from its beginning on",
    ]


def test_a_deleted_topic_keeps_nothing_of_the_others_back(shell: Any) -> None:
    for topic in ("a", "b"):
        shell.cluster.fill(topic, 0, [b"old"])

    def change() -> None:
        if shell.cluster.polls == 2:
            del shell.cluster.records[TopicPartition("a", 0)]
            shell.cluster.fill("b", 1, [b"grown"])

    shell.cluster.before_poll = change
    assert shell("consume", "-t", "a,b", "--timeout-ms", "20000", "-q").out == "grown\n"


def test_many_deleted_topics_do_not_delay_the_end(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"a{number}" for number in range(30)]
    for topic in topics:
        shell.cluster.fill(topic, 0, [b"old"])
    known = FakeConsumer.partitions_for_topic

    def patient(consumer: FakeConsumer, topic: str, timeout_ms: float) -> list[int]:
        try:
            return known(consumer, topic, timeout_ms)
        except UnknownTopic:
            shell.session.clock += timeout_ms / 1000
            raise

    monkeypatch.setattr(FakeConsumer, "partitions_for_topic", patient)
    shell.session.step_s = 0.01
    shell.cluster.before_poll = lambda: shell.cluster.records.clear() if shell.cluster.polls == 2 else None
    assert shell("consume", "-t", ",".join(topics), "--timeout-ms", "6000", "-q").code == 0
    assert shell.session.clock < 8


def test_a_pattern_that_no_topic_matches_is_told(shell: Any) -> None:
    ran = shell("consume", "-r", "x.*", "--timeout-ms", "1000", "-q")
    assert (ran.code, ran.err) == (0, "strandline: no topic matches 'x.*' yet; those that appear are read\n")
    ran = shell("consume", "-r", "x.*", "-e")
    assert (ran.code, ran.err.splitlines()[0][:36]) == (1, "strandline: no topic matches 'x.*'; ")


@pytest.mark.parametrize(
    ("args", "out"),
    [
        (("-K", ":"), "k:null\nnull:v\n"),
        (("-K", r"\t", "-D", r"\0"), "k\tnull\0null\tv\0"),
        (("-K", "|", "--print-offset"), "Offset:0|null\nOffset:1|v\n"),
        (("-K", ":", "-Z"), "k:NULL\nNULL:v\n"),
        (("--null", ""), "\nv\n"),
        (("-f", r"%k=%v\n"), "k=\n=v\n"),
        (("-F", r"%k=%v\n", "--null", r"\\N"), "k=\\N\n\\N=v\n"),
        (("--property", "print.key=true", "--property", "key.separator=-"), "k-null\nnull-v\n"),
        (("--property", "print.key=true", "--property", "print.value=false"), "k\nnull\n"),
        (("--property", "line.separator=;", "--property", "null.literal=NIL"), "NIL;v;"),
        (("-c", "1", "-f", "%o"), "0"),
    ],
)
def test_separators_and_nulls_are_those_that_were_asked_for(shell: Any, args: tuple[str, ...], out: str) -> None:
    shell.cluster.records[TopicPartition("t", 0)] = [
        FakeRecord("t", 0, 0, key=b"k", value=None),
        FakeRecord("t", 0, 1, key=None, value=b"v"),
    ]
    ran = shell(*LINES, "-t", "t", *args)
    assert (ran.code, ran.out, ran.err) == (0, out, "")


@pytest.mark.parametrize(
    ("offsets", "out"),
    [
        (("beginning",), "abc"),
        (("-2",), "bc"),
        (("1:2",), "b"),
        (("s@1500",), "bc"),
        (("s@1500", "e@2500"), "b"),
        (("e@1500",), "a"),
    ],
)
def test_offsets_may_be_written_as_for_kcat(shell: Any, offsets: tuple[str, ...], out: str) -> None:
    for value, seconds in ((b"a", 1), (b"b", 2), (b"c", 3)):
        shell.cluster.fill("t", 0, [value], timestamp_ms=seconds * 1_000_000)
    args = [word for text in offsets for word in ("-o", text)]
    assert shell("consume", "-t", "t", "-f", "%v", "--timeout-ms", "1", *args).out == out


def test_stored_is_what_a_group_does(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a"])
    assert shell("consume", "-t", "t", "-g", "g", "-o", "stored", "--timeout-ms", "1").code == 0
    assert shell("consume", "-t", "t", "-o", "stored").code == 2


def test_verbose_says_which_offsets_are_read(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a", b"b"])
    assert shell("consume", "-t", "t", "-o", "1:end", "-v", "-q").err == (
        "strandline: t-0 is read from offset 1 on, before 2\n"
    )


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "--topic"),
        (("-t", "t", "-r", "t"), "--topic"),
        (("-r", "("), "no regular expression"),
        (("-t", "a,b", "-p", "0"), "--partition"),
        (("-t", "a,,b"), "topic"),
        (("-t", "t", "-o", "1", "-o", "2"), "--offset is given twice"),
        (("-t", "t", "-o", "s@1", "-o", "s@2"), "--offset is given twice"),
        (("-t", "t", "-J", "-Z"), "null"),
        (("-t", "t", "-J", "-K", ":"), "--print-"),
        (("-t", "t", "-f", "%v", "--property", "print.key=true"), "--property"),
        (("-t", "t", "--property", "print.keys=true"), "did you mean print.key?"),
        (("-t", "t", "--property", "nothing=1"), "there are print.key, "),
        (("-t", "t", "-Z", "--null", "N"), "--null"),
    ],
)
def test_options_that_contradict_each_other_are_refused(shell: Any, args: tuple[str, ...], told: str) -> None:
    ran = shell("consume", *args)
    assert (ran.code, ran.err.count("\n"), told in ran.err) == (2, 1, True), ran.err


@pytest.mark.parametrize(
    ("args", "start", "stop", "code"),
    [
        (("--from-beginning", "-e"), 0, 2, 1),
        (("-o", ":end"), 0, 2, 1),
        (("-o", "0:1"), 0, 1, 1),
        (("-o", "0:9"), 0, 9, 1),
        (("-o", "2:9"), 2, 9, 0),
    ],
)
def test_a_range_that_was_not_read_to_its_end_in_time_is_told(
    shell: Any, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], start: int, stop: int, code: int
) -> None:
    """It failed where something was not read that had been there; what was named need not exist yet."""
    shell.cluster.fill("t", 0, [b"a", b"b"])
    monkeypatch.setattr(type(shell.session.consumer("")), "fetch_batches", lambda consumer, timeout_ms: [])
    ran = shell("consume", "-t", "t", "--timeout-ms", "1000", "-q", *args)
    told = f"strandline: not all was read before --timeout-ms passed: t-0 up to {start}, not {stop}\n"
    assert ran == (code, "", told)


def test_a_program_is_told_that_the_stream_was_interrupted(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a"])
    for as_json in (("-J",), ("--output", "json")):
        shell.cluster.interrupt_at_poll = shell.cluster.polls + 2
        ran = shell("consume", "-t", "t", "--from-beginning", *as_json)
        record, end = map(json.loads, ran.out.splitlines())
        assert (ran.code, record["payload"]) == (130, "a")
        assert (end["_command"], end["error"]["name"], end["error"]["exit_code"]) == ("consume", "Interrupted", 130)


def test_damaged_records_are_shown_to_who_does_not_have_checksums_looked_at(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*given: Any) -> FetchedBatches:
        fetched = fetched_batches(*given)
        spoilt = bytearray(fetched.records)
        spoilt[spoilt.index(b"good") + 3] ^= 1
        return fetched._replace(records=memoryview(spoilt))

    monkeypatch.setattr(sys.modules[type(shell).__module__], "fetched_batches", damaged)
    shell.cluster.fill("t", 0, [b"good"])
    ran = shell("consume", "-t", "t", "--from-beginning", "-e")
    assert (ran.code, ran.out, "damaged" in ran.err) == (1, "", True)
    ran = shell("consume", "-t", "t", "--from-beginning", "-e", "-X", "check.crcs=false")
    assert (ran.code, ran.out) == (0, "gooe\n")
